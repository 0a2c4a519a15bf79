"""A small decoder transformer: embedding, blocks of attention and two layers, a head over the vocabulary.

Nothing is downloaded: weights and tokens are generated from a seed.
"""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Tuple

SPREAD = 0.02  # of the initial weights, as in GPT-2


class Shape(NamedTuple):
    """The sizes of a model and of its batch on one GPU."""

    layers: int
    hidden: int
    heads: int
    sequence: int
    batch: int
    vocabulary: int

    @property
    def tokens(self) -> int:
        """Number of tokens of one step on one GPU."""
        return self.sequence * self.batch


GPU = Shape(layers=8, hidden=2048, heads=16, sequence=2048, batch=4, vocabulary=16384)
CPU = Shape(layers=2, hidden=128, heads=4, sequence=64, batch=4, vocabulary=256)


def parameters(shape: Shape) -> Tuple[int, int]:
    """Return the number of parameters, and of those that multiply: a look-up in the embeddings does not."""
    blocks = shape.layers * 12 * shape.hidden * shape.hidden
    embedding = (shape.vocabulary + shape.sequence) * shape.hidden
    head = shape.vocabulary * shape.hidden
    return blocks + embedding + head, blocks + head


def flops(shape: Shape) -> float:
    """Return the floating-point operations of one step on one GPU: tokens x (6 N + 12 layers x hidden x sequence).

    N is the number of parameters that multiply. The second term is attention, forward and backward, not halved for its
    mask (Chowdhery et al., PaLM, appendix B, arXiv:2204.02311; Kaplan et al., arXiv:2001.08361, section 2.1).
    """
    attention = 12 * shape.layers * shape.hidden * shape.sequence
    return float(shape.tokens * (6 * parameters(shape)[1] + attention))


def memory_bytes(shape: Shape, size: int) -> int:
    """Return the approximate memory of the steps, in numbers of `size` bytes.

    Counts two models (one that communicates, one that does not), each with weights, gradients and two moments; the
    buckets of the gradients; activations (Korthikanti et al., arXiv:2205.05198: 34 bytes for each token, layer and
    hidden unit in 16-bit numbers, without attention's matrix); and the head's output in 32 bits, three times.
    """
    weights = parameters(shape)[0] * size * 9
    activations = shape.tokens * shape.hidden * shape.layers * 17 * size
    return weights + activations + 3 * 4 * shape.tokens * shape.vocabulary


def batch(torch: Any, shape: Shape, seed: int, device: Any) -> Tuple[Any, Any]:
    """Return tokens and the next ones, the same at every step, so that the loss must decrease."""
    generator = torch.Generator()
    generator.manual_seed(seed)
    drawn = torch.randint(shape.vocabulary, (shape.batch, shape.sequence + 1), generator=generator).to(device)
    return drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()


def model(torch: Any, shape: Shape, seed: int, device: Any, dtype: Any) -> Any:
    """Return the model with weights generated from a seed; called with both parts of a batch it returns the loss."""
    made = _decoder(torch, shape)
    generator = torch.Generator()
    generator.manual_seed(seed)
    with torch.no_grad():
        for weights in made.parameters():
            if weights.dim() > 1:
                weights.normal_(0.0, SPREAD, generator=generator)
    return made.to(device=device, dtype=dtype)


def _block(torch: Any, shape: Shape) -> Any:
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        """Attention and two layers, each added to its input."""

        def __init__(self) -> None:
            super().__init__()
            wide = shape.hidden
            self.first, self.second = nn.LayerNorm(wide), nn.LayerNorm(wide)
            self.query, self.key, self.value = (nn.Linear(wide, wide, bias=False) for _ in range(3))
            self.out = nn.Linear(wide, wide, bias=False)
            self.up, self.down = nn.Linear(wide, 4 * wide, bias=False), nn.Linear(4 * wide, wide, bias=False)

        def forward(self, x: Any) -> Any:
            # Three products: a packed one is split by copies in the backward pass (7 % of a step on an H100, torch
            # 2.11).
            normed = self.first(x)
            query, key, value = (
                part(normed).unflatten(-1, (shape.heads, -1)).transpose(1, 2)
                for part in (self.query, self.key, self.value)
            )
            attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + self.out(attended.transpose(1, 2).flatten(-2))
            return x + self.down(functional.gelu(self.up(self.second(x))))

    return Block()


def _decoder(torch: Any, shape: Shape) -> Any:
    nn, functional = torch.nn, torch.nn.functional

    class Decoder(nn.Module):  # type: ignore[misc,name-defined]
        """The whole model including its loss, so that a wrapper sees one call."""

        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(shape.vocabulary, shape.hidden)
            self.places = nn.Embedding(shape.sequence, shape.hidden)
            self.blocks = nn.ModuleList([_block(torch, shape) for _ in range(shape.layers)])
            self.norm = nn.LayerNorm(shape.hidden)
            self.head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)

        def forward(self, tokens: Any, following: Any) -> Any:
            x = self.tokens(tokens) + self.places.weight
            for block in self.blocks:
                x = block(x)
            said = self.head(self.norm(x)).float()
            return functional.cross_entropy(said.flatten(0, 1), following.flatten())

    return Decoder()


def described(shape: Shape) -> Dict[str, int]:
    """Return the sizes by name and the numbers of parameters."""
    return dict(shape._asdict(), parameters=parameters(shape)[0], multiplying=parameters(shape)[1])
