"""`lorikeet doctor` finds what it is given to find, also in probes that hang or crash, and runs heed its quick part."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest

import harness

PROBES = {"matrix product", "host copies", "peer copy", "all-reduce", "disk write"}


def children_of(parent):
    """{pid: command line} of the processes that `parent` has started."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            pid = int(entry.name)
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                found[pid] = (entry / "cmdline").read_bytes().decode(errors="replace")
    return found


def running(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


class Doctor(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])

    def command(self, *arguments):
        return [str(self.programs.folder / "lorikeet"), "doctor", "--json", *map(str, arguments)]

    def doctor(self, *arguments, **variables):
        """Exit code and {check: [findings]}."""
        result = subprocess.run(
            self.command(*arguments), env={**harness.ENVIRONMENT, **variables}, capture_output=True, text=True,
            timeout=300, check=False)
        return self.findings(result.stdout, result.returncode, result.stderr)

    def findings(self, output, code, errors=""):
        self.assertIn(code, (0, 1, 3), errors)
        report = json.loads(output)
        self.assertEqual(report["exit_code"], code)
        checks = {}
        for finding in report["findings"]:
            checks.setdefault(finding["check"], []).append(finding)
        return code, checks

    def start(self, *arguments):
        return subprocess.Popen(
            self.command("device=cpu", *arguments), env=harness.ENVIRONMENT, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True)

    def probe_of(self, process):
        """The pid of the probe that runs."""
        found = {}

        def there():
            found.update({p: c for p, c in children_of(process.pid).items() if "matrix product" in c})
            return bool(found)

        self.assertTrue(harness.wait_for(there, interval=0.001))
        return next(iter(found))

    def test_all_probes_of_the_cpu_are_made_and_told_with_figures(self):
        _, checks = self.doctor("device=cpu", "--output-dir", self.programs.work / "not" / "there")
        self.assertLessEqual(PROBES, set(checks))
        for probe in PROBES:
            self.assertEqual([f["result"] for f in checks[probe]], ["ok"], checks[probe])
        self.assertGreater(checks["matrix product"][0]["figures"]["gflops_per_second"], 0)
        self.assertGreater(checks["all-reduce"][0]["figures"]["bus_gb_per_second"], 0)
        self.assertGreater(checks["disk write"][0]["figures"]["mb_per_second"], 0)
        self.assertFalse((self.programs.work / "not").exists())

    def test_the_quick_part_measures_nothing(self):
        _, checks = self.doctor("--quick", "device=cpu")
        self.assertFalse(PROBES & set(checks))
        self.assertEqual(checks["CUDA_LAUNCH_BLOCKING"][0]["result"], "ok")

    def test_a_table_is_printed_for_people(self):
        result = self.programs.verb("doctor", "--quick", "device=cpu")
        self.assertRegex(result.stdout, r"(?m)^CUDA_LAUNCH_BLOCKING +ok +not set$")
        self.assertRegex(result.stdout, r"(?m)^GPUs +ok +none is used")

    def test_launch_blocking_is_found_and_cannot_drive_a_terminal(self):
        _, checks = self.doctor("--quick", "device=cpu", CUDA_LAUNCH_BLOCKING="\x1b[2J")
        (finding,) = checks["CUDA_LAUNCH_BLOCKING"]
        self.assertEqual((finding["result"], finding["command"]), ("note", "unset CUDA_LAUNCH_BLOCKING"))
        self.assertIn("\\x1b[2J", finding["sentence"])

    def test_more_threads_than_cpus_are_a_warning_and_exit_1(self):
        code, checks = self.doctor("--quick", "device=cpu", "--ranks", 1024)
        self.assertEqual((code, checks["threads"][0]["result"]), (1, "warning"))
        self.assertEqual(checks["threads"][0]["command"], "export OMP_NUM_THREADS=1")

    def test_an_output_folder_among_overrides_alone_is_the_one_that_is_looked_at(self):
        code, checks = self.doctor("--quick", "device=cpu", "checkpoint.output_dir=/proc/runs")
        self.assertEqual((code, checks["output folder"][0]["result"]), (3, "unfit"))
        self.assertIn("the kernel's own", checks["output folder"][0]["sentence"])

    def test_a_folder_that_cannot_be_written_is_unfit_and_exit_3(self):
        file = self.programs.work / "file"
        file.write_text("")
        code, checks = self.doctor("--quick", "device=cpu", "--output-dir", file / "runs")
        self.assertEqual((code, checks["output folder"][0]["result"]), (3, "unfit"))
        self.assertIn("is no folder", checks["output folder"][0]["sentence"])

    def test_a_device_that_is_not_there_is_unfit(self):
        code, checks = self.doctor("--quick", "device=cuda:999")
        self.assertEqual((code, checks["device"][0]["result"]), (3, "unfit"))

    def test_gpu_tests_without_a_gpu_say_so_and_exit_3(self):
        for device in ("device=cpu", "device=cuda:999"):
            result = self.programs.verb("doctor", "--gpu-tests", device)
            self.assertEqual((result.returncode, result.stdout), (3, ""), result.stderr)
            self.assertIn("--gpu-tests: expected a GPU, got ", result.stderr)
        self.assertEqual(self.programs.verb("doctor", "--gpu-tests", "--quick").returncode, 2)

    def test_a_config_says_what_is_meant(self):
        _, checks = self.doctor(
            self.programs.work / "config.yaml", f"checkpoint.output_dir={self.programs.work / 'mine'}", "--quick")
        self.assertIn(str(self.programs.work / "mine"), checks["output folder"][0]["sentence"])

    def test_bad_usage_exits_2_without_a_report(self):
        for arguments in (["nowhere.yaml"], ["--ranks", "0"], ["no.such=1"], ["--time-limit", "x"]):
            result = self.programs.verb("doctor", "--quick", *arguments)
            self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
        result = self.programs.verb("probe", "{}")
        self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)

    def test_a_probe_that_hangs_is_ended_at_its_limit_and_the_others_go_on(self):
        process = self.start("--time-limit", 8)
        os.kill(self.probe_of(process), signal.SIGSTOP)
        output, _ = process.communicate(timeout=240)
        code, checks = self.findings(output, process.returncode)
        self.assertEqual((code, checks["matrix product"][0]["result"]), (3, "unfit"))
        self.assertIn("did not end within 8 s", checks["matrix product"][0]["sentence"])
        self.assertEqual(len(checks["disk write"]), 1)

    def test_a_probe_that_crashes_is_told_with_its_signal(self):
        process = self.start()
        os.kill(self.probe_of(process), signal.SIGSEGV)
        output, _ = process.communicate(timeout=240)
        code, checks = self.findings(output, process.returncode)
        self.assertEqual(code, 3)
        self.assertIn("was killed by signal 11", checks["matrix product"][0]["sentence"])

    def test_no_probe_outlives_the_doctor(self):
        process = self.start()
        probe = self.probe_of(process)
        os.kill(probe, signal.SIGSTOP)
        harness.stop(process)
        process.stdout.close()
        self.assertTrue(harness.wait_for(lambda: not running(probe)))

    def test_a_run_warns_once_and_goes_on(self):
        output = self.programs.work / "warned"
        result = subprocess.run(
            [self.programs.folder / "lorikeet", "run", "--nproc", "2", "lora_finetune_distributed", "--config",
             self.programs.work / "config.yaml", f"checkpoint.output_dir={output}", "training.max_steps=1",
             "lr_scheduler.warmup_steps=0"],
            env={**harness.ENVIRONMENT, "OMP_PROC_BIND": "close", "OMP_NUM_THREADS": "1"},
            capture_output=True, text=True, timeout=240, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        warnings = re.findall(r"^warning: thread binding: .*$", result.stderr, re.MULTILINE)
        self.assertEqual(len(warnings), 1, result.stderr)
        self.assertIn("to fix it: unset OMP_PROC_BIND", warnings[0])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
