"""What `lorikeet adapters` writes loads in PEFT, and does what the sum of the dense updates does."""

import json

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
        return self.nll_of(reference.load(self.base), updates)

    def nll_of(self, model, updates):
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

    def test_a_flattened_adapter_is_the_same_and_right_for_who_reads_r_and_lora_alpha_alone(self):
        patterns = {"rank_pattern": {"o_proj": 2, "up_proj": 6}, "alpha_pattern": {"q_proj": 3}}
        for what, options in (("patterns", patterns), ("rsLoRA", {**patterns, "use_rslora": True}), ("DoRA", {**patterns, "use_dora": True})):
            adapter = reference.make_adapter(self.base, self.root / what, **options)
            flat = self.programs.adapters("flatten", adapter, output=self.root / f"flat {what}")
            config = json.loads((flat / "adapter_config.json").read_text())
            self.assertEqual((config["r"], config["rank_pattern"], config["alpha_pattern"]), (6, {}, {}))
            expected = reference.token_nll(reference.with_adapter(self.base, adapter), self.rows)
            theirs = reference.token_nll(reference.with_adapter(self.base, flat), self.rows)
            self.below(reference.deviation(theirs, expected), LIMIT, f"flattened {what}, in PEFT")
            ours, _ = self.programs.token_nll(self.base, self.data, flat)
            self.below(reference.deviation(ours, expected), LIMIT, f"flattened {what}, here")
            if what == "DoRA":
                continue
            plain = self.nll_with(self.updates(flat, lambda rank: config["lora_alpha"] / config["r"]))
            self.below(reference.deviation(plain, expected), LIMIT, f"flattened {what}, by r and lora_alpha alone")
            wrong = self.nll_with(self.updates(adapter, lambda rank: 8 / 4))
            self.beyond(reference.deviation(wrong, expected), 1e-3, f"{what}, by r and lora_alpha alone")

    def test_tables_of_tokens_are_averaged_and_shrunk_with_the_rest(self):
        # An adapter on the embedding, which PEFT writes beside the base's table, and a head that is trained whole.
        targets, saved = ["q_proj", "embed_tokens"], ["lm_head"]
        for variant, more in (("plain", {}), ("tied", {}), ("plain", {"head": True})):
            on_head = "head" in more
            what = f"{variant}, {'adapter' if on_head else 'copy'} of the head"
            base = tiny_llama.make_checkpoint(self.root / f"base {what}", variant)
            options = {"targets": [*targets, "lm_head"]} if on_head else {"targets": targets, "modules_to_save": saved}
            folders = [reference.make_adapter(base, self.root / f"{seed} {what}", rank=seed, alpha=6, seed=seed, **options)
                       for seed in (3, 4)]
            weights = (1.5, -0.5)
            model = reference.load(base)
            changed = {name: module.weight.detach().clone() for name, module in
                       (("model.embed_tokens", model.get_input_embeddings()), ("lm_head", model.lm_head))}
            updates, low = {}, {}
            for folder, weight in zip(folders, weights):
                tensors = reference.adapter_tensors(folder)
                rank = json.loads((folder / "adapter_config.json").read_text())["r"]
                for name, tensor in tensors.items():
                    module = name.removeprefix("base_model.model.").split(".lora_")[0].removesuffix(".weight")
                    if "lora_A" in name:
                        update = tensors[name.replace("lora_A", "lora_B")].double() @ tensor.double()
                    elif "lora_embedding_A" in name:
                        update = (tensors[name.replace("embedding_A", "embedding_B")].double() @ tensor.double()).T
                    elif name.endswith("lm_head.weight"):
                        update = (tensor - changed["lm_head"]).double() * rank / 6
                    else:
                        continue
                    updates[module] = updates.get(module, 0) + weight * 6 / rank * update
            for name, update in updates.items():
                u, s, vt = torch.linalg.svd(update, full_matrices=False)
                low[name] = update if name == "lm_head" and not on_head else u[:, :2] * s[:2] @ vt[:2]
            average = self.programs.adapters("average", *folders, f"--weights={weights[0]},{weights[1]}",
                                             output=self.root / f"average {what}")
            shrunk = self.programs.adapters("shrink", average, "--rank", 2, output=self.root / f"shrunk {what}")
            for adapter, wanted in ((average, updates), (shrunk, low)):
                # Tables of their own: a tied one would get both changes at both ends.
                dense = reference.load(base)
                dense.lm_head.weight = torch.nn.Parameter(dense.lm_head.weight.detach().clone())
                expected = self.nll_of(dense, wanted)
                label = f"{adapter.name}"
                theirs = reference.token_nll(reference.with_adapter(base, adapter), self.rows)
                self.below(reference.deviation(theirs, expected), LIMIT, f"{label}, in PEFT")
                ours, _ = self.programs.token_nll(base, self.data, adapter)
                self.below(reference.deviation(ours, expected), LIMIT, f"{label}, here")


if __name__ == "__main__":
    live_test.main()
