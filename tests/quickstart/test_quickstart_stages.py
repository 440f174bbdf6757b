"""The stages: what is done is not done again, what is half done is; the run is stopped once and resumed."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from electra_ds.config.errors import (
    EXIT_BAD_INPUT,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_STOPPED,
    InputError,
    RunFailure,
)
from electra_ds.quickstart import main as quickstart_main
from electra_ds.quickstart import training
from electra_ds.quickstart.corpus import CorpusWriter
from electra_ds.quickstart.results import read_results
from electra_ds.quickstart.stages import Workplace
from electra_ds.quickstart.training import Launch, read_status, train_until

# Stands for the launcher and its ranks: counts steps in status.json, saves on SIGTERM, and resumes.
FAKE_RUN = textwrap.dedent(
    """
    import json, os, pathlib, signal, sys, time
    run, steps, mode = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    run.mkdir(parents=True, exist_ok=True)
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    def write(state, step, **more):
        (run / "status.tmp").write_text(json.dumps({"state": state, "step": step, **more}))
        os.replace(run / "status.tmp", run / "status.json")
    saved = run / "saved"
    step = int(saved.read_text()) if saved.exists() else 0
    (run / "starts").open("a").write(f"{step}\\n")
    while step < steps:
        if asked:
            saved.write_text(str(step))
            write("stopped", step, exit_code=75)
            sys.exit(1)
        if mode == "fails" and step == 5:
            write("failed", step, exit_code=1, reason="the loss is not finite")
            sys.exit(1)
        time.sleep(0.02)
        step += 1
        write("running", step, pids=[os.getpid()])
    saved.write_text(str(step))
    record = {"step": step, "loss/total": 1.5, "eval/loss/total": 1.25, "eval/discriminator/auc": AUC}
    (run / "metrics.jsonl").write_text(json.dumps({**record, "perf/tokens_per_s": 100.0}) + "\\n")
    write("finished", step, exit_code=0)
    """
)


def fake_launch(run, steps=60, mode="good", auc="0.8"):
    return Launch(("-c", FAKE_RUN.replace("AUC", auc), str(run), str(steps), mode), {}, run, steps)


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    def start(launch):
        return subprocess.Popen([sys.executable, *launch.command], start_new_session=True)

    monkeypatch.setattr(training, "_start", start)
    monkeypatch.setattr(training, "_POLL_SECONDS", 0.01)


def starts(run):
    return [int(line) for line in (run / "starts").read_text().split()]


class TestTraining:
    def test_stops_half_way_and_resumes_to_the_end(self, tmp_path):
        status = train_until(fake_launch(tmp_path), stop_step=30)
        assert status["state"] == "stopped"
        assert status["exit_code"] == EXIT_STOPPED
        assert 30 <= status["step"] < 60
        assert train_until(fake_launch(tmp_path), stop_step=None)["state"] == "finished"
        assert starts(tmp_path) == [0, status["step"]]

    def test_status_of_a_killed_run_does_not_count(self, tmp_path):
        pids = [2**22 + 1]  # larger than any process number
        (tmp_path / "status.json").write_text(json.dumps({"state": "running", "step": 50, "pids": pids}))
        assert train_until(fake_launch(tmp_path), stop_step=30)["state"] == "stopped"

    def test_failure_names_the_reason(self, tmp_path):
        with pytest.raises(RunFailure, match=r"the loss is not finite.*log\.txt"):
            train_until(fake_launch(tmp_path, mode="fails"), stop_step=None)

    def test_interrupt_lets_the_ranks_save(self, tmp_path):
        def interrupt():
            while read_status(tmp_path).get("step", 0) < 5:
                pass
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            train_until(fake_launch(tmp_path, steps=100_000), stop_step=None)
        thread.join()
        assert read_status(tmp_path)["state"] == "stopped"
        assert int((tmp_path / "saved").read_text()) == read_status(tmp_path)["step"]

    def test_two_starts_get_two_ports(self):
        assert len({training.free_port() for _ in range(8)}) > 1


class TestWorkplace:
    def test_done_stages_are_remembered_while_their_outputs_exist(self, tmp_path):
        place = Workplace(tmp_path / "w", [])
        assert not place.is_done("tokenizer")
        (tmp_path / "w" / "tokenizer").mkdir()
        assert not place.is_done("tokenizer")  # there, but by whom?
        place.finish("tokenizer", "tokenizer")
        del place
        again = Workplace(tmp_path / "w", [])
        assert again.is_done("tokenizer")
        (tmp_path / "w" / "tokenizer").rmdir()
        assert not again.is_done("tokenizer")

    def test_one_at_a_time(self, tmp_path):
        place = Workplace(tmp_path / "w", [])
        with pytest.raises(InputError, match="another quickstart is at work"):
            Workplace(tmp_path / "w", [])
        del place

    def test_other_text_is_refused(self, tmp_path):
        Workplace(tmp_path / "w", ["a.txt"])
        with pytest.raises(InputError, match=r"other text \(.*a\.txt, now .*b\.txt\)"):
            Workplace(tmp_path / "w", ["b.txt"])

    def test_a_folder_that_is_not_ours_is_left_alone(self, tmp_path):
        (tmp_path / "thesis.txt").write_text("precious")
        with pytest.raises(InputError, match="no quickstart made it"):
            Workplace(tmp_path, [])
        assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


class TestWhole:
    """All stages with commands that only note that they were called."""

    @pytest.fixture
    def calls(self, tmp_path, monkeypatch):
        made = []

        def run_command(arguments):
            made.append(arguments[0])
            if arguments[0] in fails:
                raise fails.pop(arguments[0])
            output = arguments[arguments.index("--output") + 1]
            for name in ("discriminator", "generator") if arguments[0] == "export" else (".",):
                os.makedirs(os.path.join(output, name))

        def build_corpus(inputs, folder):
            made.append("corpus")
            writer = CorpusWriter(folder)
            writer.write(["A line."], held_out=False)
            writer.write(["Another line."], held_out=True)
            return writer.finish()

        fails = {}
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(quickstart_main, "run_command", run_command)
        monkeypatch.setattr(quickstart_main, "build_corpus", build_corpus)
        monkeypatch.setattr(quickstart_main, "_show", lambda place, results: made.append("show"))
        monkeypatch.setattr(
            quickstart_main,
            "plan_launch",
            lambda data, held_out, run, steps, ds_config: fake_launch(run, steps, auc=auc[0]),
        )
        auc = ["0.8"]
        self.fails, self.auc, self.run = fails, auc, tmp_path / "quickstart" / "run"
        previous = signal.getsignal(signal.SIGTERM)
        yield made
        signal.signal(signal.SIGTERM, previous)

    def test_all_stages_in_order_and_nothing_twice(self, calls, capsys):
        assert quickstart_main.main(["--steps", "60"]) == EXIT_DONE
        assert calls == ["corpus", "tokenizer", "prepare", "prepare", "export", "show"]
        assert capsys.readouterr().out.rstrip().endswith("\nheldout_auc=0.800")
        assert len(starts(self.run)) == 2
        assert quickstart_main.main(["--steps", "60"]) == EXIT_DONE
        assert calls[6:] == ["show"]
        assert "finished before" in capsys.readouterr().out
        assert len(starts(self.run)) == 2

    def test_only_data_ends_with_the_shards_and_the_quickstart_goes_on_from_there(self, calls, capsys):
        assert quickstart_main.main(["--only-data", "quickstart"]) == EXIT_DONE
        assert calls == ["corpus", "tokenizer", "prepare", "prepare"]
        assert "--data quickstart/shards/train" in capsys.readouterr().out
        assert quickstart_main.main(["--steps", "60"]) == EXIT_DONE
        assert calls[4:] == ["export", "show"]

    def test_goes_on_where_it_failed(self, calls, capsys):
        self.fails["prepare"] = RunFailure("no space left")
        assert quickstart_main.main(["--steps", "60"]) == EXIT_FAILED
        assert capsys.readouterr().err == "quickstart: failed: no space left\n"
        assert quickstart_main.main(["--steps", "60"]) == EXIT_DONE
        assert calls == ["corpus", "tokenizer", "prepare", "prepare", "prepare", "export", "show"]

    def test_the_planned_stop_comes_once(self, calls):
        self.fails["export"] = KeyboardInterrupt()
        assert quickstart_main.main(["--steps", "60"]) == EXIT_STOPPED
        assert quickstart_main.main(["--steps", "60"]) == EXIT_DONE
        assert len(starts(self.run)) == 2

    def test_more_steps_go_on_from_the_finished_run(self, calls):
        assert quickstart_main.main(["--steps", "60"]) == EXIT_DONE
        assert quickstart_main.main(["--steps", "90"]) == EXIT_DONE
        assert starts(self.run)[-1] == 60
        assert calls.count("export") == 2

    def test_low_auc_is_a_failure(self, calls, capsys):
        self.auc[0] = "0.699"
        assert quickstart_main.main(["--steps", "60"]) == EXIT_FAILED
        captured = capsys.readouterr()
        assert captured.out.rstrip().endswith("heldout_auc=0.699")
        assert "below 0.70" in captured.err

    def test_wrong_input_is_one_line(self, calls, capsys):
        assert quickstart_main.main(["--steps", "1"]) == EXIT_BAD_INPUT
        assert capsys.readouterr().err.count("\n") == 1


def test_results_are_the_last_ones_and_a_cut_off_line_is_passed_over(tmp_path):
    lines = [
        {"step": 10, "loss/total": 3.0, "perf/tokens_per_s": 100.0},
        {"step": 10, "eval/loss/rtd": 0.4, "eval/discriminator/auc": 0.6},
        {"step": 20, "loss/total": 2.0, "perf/tokens_per_s": 300.0},
        {"step": 20, "eval/loss/rtd": 0.3, "eval/discriminator/auc": 0.75},
        {"step": 30, "loss/total": 1.0, "perf/tokens_per_s": 200.0},
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\n{"step": 40, "lo')
    results = read_results(tmp_path)
    assert (results.heldout_auc, results.losses, results.tokens_per_s) == (0.75, {"total": 1.0}, 200.0)
    assert results.heldout_losses == {"rtd": 0.3}


def test_a_run_without_evaluation_has_no_results(tmp_path):
    with pytest.raises(RunFailure, match="no held-out evaluation"):
        read_results(tmp_path)
