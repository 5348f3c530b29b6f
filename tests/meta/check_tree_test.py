"""Each rule finds the breach that it is there for, and lets what is right pass."""

import tempfile
import unittest
from pathlib import Path

import check_tree
import layers
import operator_rules
import rules
from tree import Tree

ORDER = layers.read_layers(Path(__file__).resolve().parent / "layers.txt")
# Assembled, so that this file keeps the rule that it tests.
MACHINE_PATH = "/" + "home/someone/model"


class TreeTest(unittest.TestCase):
    def tree(self, files):
        """A tree of {name: text} in a folder that goes with the test."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for name, text in files.items():
            path = Path(folder.name) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return Tree(folder.name)

    def includes(self, files):
        """What the layer check says of a tree of {name: [headers it includes]}."""
        lines = {
            name: "".join(f"#include {header}\n" for header in headers) for name, headers in files.items()
        }
        return [str(finding) for finding in layers.check_layers(self.tree(lines), ORDER)]

    def assert_one(self, findings, *parts):
        self.assertEqual(len(findings), 1, findings)
        for part in parts:
            self.assertIn(part, str(findings[0]))


class Includes(TreeTest):
    def test_a_lower_or_the_own_layer_may_be_included(self):
        self.assertEqual(
            self.includes(
                {"lib/base/a.h": [], "lib/io/b.h": ['"base/a.h"'], "lib/io/b.cpp": ['"io/b.h"', '"b.h"']}
            ),
            [],
        )

    def test_a_higher_layer_is_found(self):
        found = self.includes({"lib/io/a.h": [], "lib/base/b.cpp": ["<vector>", '"io/a.h"']})
        self.assert_one(found, "lib/base/b.cpp:2", "higher layer lib/io")

    def test_recipes_and_apps_are_above_the_libraries(self):
        self.assertEqual(self.includes({"recipes/a.h": [], "apps/main.cpp": ['"recipes/a.h"']}), [])
        self.assert_one(
            self.includes({"recipes/a.h": [], "lib/train/b.cpp": ['"recipes/a.h"']}), "higher layer recipes"
        )
        self.assert_one(
            self.includes({"models/llama/a.h": [], "lib/nn/b.h": ['"models/llama/a.h"']}),
            "higher layer models",
        )

    def test_a_relative_include_is_followed(self):
        found = self.includes({"lib/train/a.h": [], "lib/nn/b.h": ['"train/a.h"']})
        self.assert_one(found, "higher layer lib/train")

    def test_a_plain_layer_may_not_include_one_with_libtorch_though_it_is_lower(self):
        found = self.includes({"lib/ops/a.h": [], "lib/data/b.cpp": ['"ops/a.h"']})
        self.assert_one(found, "plain layer lib/data", "lib/ops")

    def test_a_test_is_held_to_the_layer_that_it_tests(self):
        self.assertEqual(
            self.includes(
                {
                    "lib/io/a.h": [],
                    "tests/support/s.h": [],
                    "tests/io/a_test.cpp": ['"io/a.h"', '"support/s.h"'],
                }
            ),
            [],
        )
        found = self.includes({"lib/train/a.h": [], "tests/io/a_test.cpp": ['"train/a.h"']})
        self.assert_one(found, "tests/io/a_test.cpp:1", "higher layer lib/train")

    def test_tests_of_no_layer_and_benchmarks_may_include_all(self):
        self.assertEqual(
            self.includes(
                {
                    "lib/train/a.h": [],
                    "tests/parity/p.cpp": ['"train/a.h"'],
                    "benchmarks/b.cpp": ['"train/a.h"'],
                }
            ),
            [],
        )

    def test_the_program_may_not_include_its_tests(self):
        found = self.includes({"tests/support/a.h": [], "lib/io/b.cpp": ['"tests/support/a.h"']})
        self.assert_one(found, "includes tests/support/a.h")

    def test_libtorch_is_found_in_a_plain_layers_header_but_may_be_in_its_source_and_elsewhere(self):
        self.assert_one(
            self.includes({"lib/data/a.h": ["<ATen/core/Tensor.h>"]}),
            "plain layer lib/data",
            "ATen/core/Tensor.h",
        )
        self.assertEqual(
            self.includes({"lib/device/a.cpp": ["<c10/core/Device.h>"], "lib/ops/a.h": ["<torch/torch.h>"]}),
            [],
        )

    def test_libtorch_is_found_in_cuda_code(self):
        self.assert_one(self.includes({"lib/ops/norm/cuda.cu": ["<ATen/ATen.h>"]}), "CUDA code")
        self.assertEqual(self.includes({"lib/ops/norm/cuda.cu": ["<cuda_runtime.h>"]}), [])

    def test_wrong_brackets_are_found(self):
        self.assert_one(self.includes({"lib/io/b.cpp": ['"zlib.h"']}), "no file of ours")
        self.assert_one(self.includes({"lib/base/a.h": [], "lib/io/b.cpp": ["<base/a.h>"]}), 'use "base/a.h"')

    def test_a_folder_that_no_layer_is_named_for_is_found(self):
        self.assert_one(self.includes({"lib/misc/a.h": []}), "belongs to no layer")


class Files(TreeTest):
    def test_a_machines_path_is_found_in_any_text_file(self):
        tree = self.tree({"docs/a.md": f"one\nsee {MACHINE_PATH}\n", "b.cpp": f'open("{MACHINE_PATH}");'})
        found = rules.check_machine_paths(tree)
        self.assertEqual([(f.path, f.line) for f in found], [("b.cpp", 1), ("docs/a.md", 2)])

    def test_urls_relative_paths_and_general_ones_pass(self):
        lines = [
            f"https://example.org{MACHINE_PATH}",
            f"out{MACHINE_PATH}",
            f"$ROOT{MACHINE_PATH}",
            "/proc/meminfo /usr/bin/env",
        ]
        self.assertEqual(rules.check_machine_paths(self.tree({"a.md": "\n".join(lines)})), [])

    def test_a_dtype_named_above_precision_is_found(self):
        for written in (
            "at::kFloat",
            "torch::kBFloat16",
            "kHalf",
            "c10::ScalarType::Half",
            "DType::kBF16",
            "torch::kFloat32",
        ):
            with self.subTest(written):
                found = rules.check_dtypes(
                    self.tree({"lib/nn/a.cpp": f"int x;\nauto d = x.to({written});\n"}), {}
                )
                self.assert_one(found, "lib/nn/a.cpp:2", written)

    def test_integer_dtypes_comments_and_other_layers_may_name_theirs(self):
        files = {
            "lib/nn/a.cpp": "x.to(at::kLong);  // not at::kFloat\n",
            "lib/ops/b.cpp": "at::kFloat",
            "lib/precision/c.cpp": "DType::kBF16",
        }
        self.assertEqual(rules.check_dtypes(self.tree(files), {}), [])

    def test_an_allowed_dtype_passes_and_an_entry_without_use_is_found(self):
        tree = self.tree({"lib/peft/a.cpp": "DType::kF32"})
        self.assertEqual(
            rules.check_dtypes(tree, {("lib/peft/a.cpp", "DType::kF32"): "the file format's"}), []
        )
        found = rules.check_dtypes(
            self.tree({"lib/peft/a.cpp": ""}), {("lib/peft/a.cpp", "DType::kF32"): "the file format's"}
        )
        self.assert_one(found, "dtype_allowed.txt", "has none")

    def test_the_allow_list_demands_a_reason(self):
        tree = self.tree({"allowed.txt": "lib/peft/a.cpp | DType::kF32 |\n"})
        with self.assertRaises(ValueError):
            rules.read_allowed_dtypes(tree.root / "allowed.txt")

    def test_a_source_of_more_than_450_lines_is_found_and_data_is_not(self):
        tree = self.tree({"a.cpp": "x\n" * 451, "b.cpp": "x\n" * 450, "c.jsonl": "{}\n" * 900})
        self.assert_one(rules.check_length(tree), "a.cpp", "451")

    def test_a_script_without_help_is_found(self):
        tree = self.tree(
            {
                "scripts/good": '#!/bin/sh\necho "usage: scripts/good"\n',
                "scripts/bad": "#!/bin/sh\necho done\n",
                "scripts/rude": "#!/bin/sh\nexit 1\n",
            }
        )
        for name in ("good", "bad", "rude"):
            (tree.root / "scripts" / name).chmod(0o755)
        self.assertEqual([f.path for f in rules.check_script_help(tree)], ["scripts/bad", "scripts/rude"])


class Mirror(TreeTest):
    def check(self, files):
        return rules.check_mirror(self.tree(files), ORDER, ("support",))

    def test_a_layer_with_tests_passes(self):
        files = {
            "lib/io/CMakeLists.txt": "SOURCES a.cpp",
            "lib/io/a.cpp": "",
            "tests/io/CMakeLists.txt": "SOURCES a_test.cpp",
            "tests/io/a_test.cpp": "",
            "tests/CMakeLists.txt": "support/main.cpp",
            "tests/support/main.cpp": "",
        }
        self.assertEqual(self.check(files), [])

    def test_a_layer_without_tests_is_found(self):
        self.assert_one(
            self.check({"lib/io/CMakeLists.txt": "a.cpp", "lib/io/a.cpp": ""}), "lib/io", "no tests/io"
        )

    def test_tests_of_nothing_are_found(self):
        self.assert_one(self.check({"tests/misc/a.txt": ""}), "tests/misc", "mirrors no layer")

    def test_a_source_may_be_named_from_another_folder_or_the_root(self):
        files = {
            "tests/io/CMakeLists.txt": "../support/a.cpp ${CMAKE_SOURCE_DIR}/tests/support/b.cpp",
            "tests/support/a.cpp": "",
            "tests/support/b.cpp": "",
        }
        self.assertEqual(self.check(files), [])

    def test_a_source_that_is_never_built_is_found(self):
        found = self.check({"tests/io/CMakeLists.txt": "ba.cpp x/a.cpp", "tests/io/a.cpp": ""})
        self.assert_one(found, "tests/io/a.cpp", "never built")

    def test_a_script_that_is_never_run_is_found(self):
        main = 'if __name__ == "__main__":'
        files = {"tests/io/CMakeLists.txt": "foreach(name a) # b\n add_test(x ${name}_test.py c_parity.py)",
                 "tests/io/a_test.py": main, "tests/io/c_parity.py": main, "tests/io/support_test.py": ""}
        self.assertEqual(self.check(files), [])
        self.assert_one(self.check(files | {"tests/io/b_test.py": main}), "tests/io/b_test.py", "never run")


class Operators(TreeTest):
    FILES = {
        "lib/ops/check.h": "",
        "lib/ops/norm/norm.h": "",
        "lib/ops/norm/norm_cuda.cu": "",
        "lib/probe/operators/cases.h": '#include "ops/gate/gate.h"\n',
        "lib/probe/operators/norm_cases.cpp": '#include "ops/norm/norm.h"\n',
    }

    def check(self, files, **without_cases):
        return operator_rules.check_cases(self.tree(self.FILES | files), without_cases)

    def test_an_operator_with_a_case_passes(self):
        self.assertEqual(self.check({}), [])

    def test_an_operator_without_a_case_is_found_unless_a_reason_is_given(self):
        new = {"lib/ops/gate/gate.h": ""}
        self.assert_one(self.check(new), "lib/ops/gate", "no case of --gpu-tests")
        self.assertEqual(self.check(new, gate="runs on the host alone"), [])

    def test_an_exception_without_use_is_found(self):
        self.assert_one(self.check({}, norm="tested elsewhere"), "operator_rules.py", "norm, which has a case")
        self.assert_one(self.check({}, gone="tested elsewhere"), "operator_rules.py", "gone, which")


class Program(TreeTest):
    def test_it_exits_1_on_a_finding_and_0_without(self):
        self.assertEqual(check_tree.main([str(self.tree({"lib/misc/a.h": ""}).root)]), 1)
        self.assertEqual(check_tree.main([str(self.tree({"README.md": "hello"}).root)]), 0)


if __name__ == "__main__":
    unittest.main()
