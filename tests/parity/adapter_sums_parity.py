"""What `lorikeet adapters` writes loads in PEFT, and does what the sum of the dense updates does."""

import live_test  # first: it skips where torch or PEFT is missing
import reference
import tiny_llama
import torch

LIMIT = 1e-5
WEIGHTS = {"first": 0.7, "second": -0.4}


class AdapterSumsParity(live_test.LiveTest):
    def setUp(self):
        super().setUp()
        self.rows = tiny_llama.make_rows(8)
        self.data = tiny_llama.write_rows(self.root / "rows.jsonl", self.rows)
        self.base = tiny_llama.make_checkpoint(self.root / "base")
        self.first = reference.make_adapter(self.base, self.root / "first", seed=3, rank_pattern={"o_proj": 2})
        self.second = reference.make_adapter(self.base, self.root / "second", ["q_proj", "layers.1.mlp.up_proj"], rank=6,
                                             alpha=9, seed=4, use_rslora=True)

    def updates(self, folder, scale):
        """{module: scale * B A}, fp64; `scale` is a function of the rank."""
        tensors = reference.adapter_tensors(folder)
        a_of = {name.split(".lora_A")[0]: a.double() for name, a in tensors.items() if "lora_A" in name}
        return {name.removeprefix("base_model.model."): scale(len(a)) * tensors[f"{name}.lora_B.weight"].double() @ a
                for name, a in a_of.items()}

    def sum_of_updates(self):
        first = self.updates(self.first, lambda rank: 8 / rank)
        second = self.updates(self.second, lambda rank: 9 / rank ** 0.5)
        assert second.keys() < first.keys()
        return {name: WEIGHTS["first"] * delta + WEIGHTS["second"] * second.get(name, 0) for name, delta in first.items()}

    def nll_with(self, updates):
        model = reference.load(self.base)
        with torch.no_grad():
            for name, delta in updates.items():
                model.get_submodule(name).weight += delta.float()
        return reference.token_nll(model, self.rows)

    def check(self, adapter, updates, what):
        expected = self.nll_with(updates)
        self.below(reference.deviation(reference.token_nll(reference.with_adapter(self.base, adapter), self.rows),
                                       expected), LIMIT, f"{what}, in PEFT")
        ours, _ = self.programs.token_nll(self.base, self.data, adapter)
        self.below(reference.deviation(ours, expected), LIMIT, f"{what}, here")
        return expected

    def test_averages_scaled_and_shrunk_adapters_are_the_dense_ones(self):
        weights = f"--weights={WEIGHTS['first']},{WEIGHTS['second']}"
        whole = self.sum_of_updates()

        average = self.programs.adapters("average", self.first, self.second, weights, output=self.root / "average")
        exact = self.check(average, whole, "average")
        bare = reference.token_nll(reference.load(self.base), self.rows)
        self.beyond(reference.deviation(bare, exact), 1e-2, "average, without the adapter")

        low = {}
        for name, delta in whole.items():
            u, s, vt = torch.linalg.svd(delta, full_matrices=False)
            low[name] = u[:, :3] * s[:3] @ vt[:3]
        shrunk = self.programs.adapters("shrink", average, "--rank", 3, output=self.root / "shrunk")
        lower = self.check(shrunk, low, "shrunk to rank 3")
        self.beyond(reference.deviation(lower, exact), 1e-3, "shrunk to rank 3, against the average")
        at_once = self.programs.adapters("average", self.first, self.second, weights, "--rank", 3,
                                         output=self.root / "at once")
        self.check(at_once, low, "average at rank 3")

        scaled = self.programs.adapters("scale", average, "-0.5", output=self.root / "scaled")
        self.check(scaled, {name: -0.5 * delta for name, delta in whole.items()}, "average times -0.5")


if __name__ == "__main__":
    live_test.main()
