"""How a step's examples are cut into micro-batches never changes what it computes, with dropout too."""

import live_test  # first: it skips where torch or PEFT is missing
import reference
import tiny_llama

LIMIT = 3e-6
WAYS = {
    "packing off": ["data.packing=false"],
    "micro 1": ["batch.micro=1"],
    "micro 3": ["batch.micro=3"],
    "micro_tokens 64": ["batch.micro_tokens=64", "data.max_seq_len=64"],
    "micro_tokens 4096": ["batch.micro_tokens=4096"],
    "checkpointing": ["training.activation_checkpointing=full"],
    "packing off, micro 1, checkpointing": ["data.packing=false", "batch.micro=1",
                                            "training.activation_checkpointing=full"],
}


class RunInvariance(live_test.LiveTest):
    def setUp(self):
        super().setUp()
        self.data = tiny_llama.write_rows(self.root / "rows.jsonl", tiny_llama.make_rows(48, longest=64))
        self.base = tiny_llama.make_checkpoint(self.root / "base")
        self.init = reference.make_adapter(self.base, self.root / "init")

    def losses(self, name, *overrides):
        lines = self.programs.train(self.base, self.data, self.root / name.replace(" ", "_"), "precision.preset=fp32",
                                    "lora.rank=4", "lora.alpha=8", f"lora.init={self.init}", "batch.global=6",
                                    "training.epochs=1", "optimizer.lr=1e-3", *overrides)
        self.assertEqual(len(lines), 8)
        return [line["loss"] for line in lines]

    def check(self, *settings):
        plain = self.losses("plain", *settings)
        for way, overrides in WAYS.items():
            with self.subTest(way):
                other = self.losses(way, *settings, *overrides)
                self.below(max(abs(a / b - 1) for a, b in zip(other, plain, strict=True)), LIMIT,
                           " ".join([way, *settings]))
        return plain

    def test_losses_do_not_depend_on_the_micro_batches(self):
        self.check()

    def test_losses_with_dropout_do_not_depend_on_the_micro_batches(self):
        with_dropout = self.check("lora.dropout=0.1")
        without = self.losses("without")
        self.beyond(max(abs(a / b - 1) for a, b in zip(with_dropout, without)), 100 * LIMIT, "another dropout")
        seeded = self.losses("seeded", "lora.dropout=0.1", "training.seed=43")
        self.beyond(max(abs(a / b - 1) for a, b in zip(with_dropout, seeded)), 100 * LIMIT, "another seed's masks")


if __name__ == "__main__":
    live_test.main()
