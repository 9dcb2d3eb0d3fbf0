"""Learned vectors larger than memory under Torch: `Embedding`, and checkpoints of model and vectors together.

    from quarry.torch import Embedding, load_checkpoint, save_checkpoint

    vectors = Embedding(db, "vectors", dim=64, lr=0.1)
    loss(model(vectors(batch.n_id), batch.edge_index)).backward()
    vectors.step()       # beside the optimizer's step(), which has the model's own parameters
    save_checkpoint(db, "run", model, optimizer)
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

import numpy as np
import numpy.typing as npt
import torch  # type: ignore[import-not-found,unused-ignore]

from . import _quarry
from ._errors import AlreadyExists, Busy, InvalidArgument, UsageError
from ._values import BFLOAT16, FLOAT32

if TYPE_CHECKING:
    from ._database import Database

_Float32 = npt.NDArray[np.float32]

_ATTEMPTS_MAX = 100  # of a step to commit; each that fails is another trainer's that succeeded
_TRAINER = "quarry.torch"
_TYPES = {"float32": FLOAT32, "bfloat16": BFLOAT16}
_INITS = {"uniform": 0, "normal": 1, "zeros": 2}  # enum quarry_init


class Rule(NamedTuple):
    """Numbers of an optimizer, as the engine's own trainer has them."""

    lr: np.float32
    eps: np.float32
    beta1: np.float32
    beta2: np.float32


# The rules of engine/embedding/optimizer.cc, in the same order of operations, so that rows that Python trains and
# rows that `quarry train` trains are equal bit for bit. They change values and state in place, a row a row.


def _sgd(rule: Rule, gradient: _Float32, values: _Float32, state: _Float32) -> None:
    values -= rule.lr * gradient


def _adagrad(rule: Rule, gradient: _Float32, values: _Float32, state: _Float32) -> None:
    state += gradient * gradient
    values -= rule.lr * gradient / (np.sqrt(state) + rule.eps)


def _adam(rule: Rule, gradient: _Float32, values: _Float32, state: _Float32) -> None:
    dim = values.shape[1]
    mean, square, steps = state[:, :dim], state[:, dim : 2 * dim], state[:, 2 * dim :]
    steps += 1
    seen = steps.astype(np.float64)
    rate = (np.float64(rule.lr) / (1.0 - np.power(np.float64(rule.beta1), seen))).astype(np.float32)
    correction = (1.0 / np.sqrt(1.0 - np.power(np.float64(rule.beta2), seen))).astype(np.float32)
    one = np.float32(1)
    mean[:] = rule.beta1 * mean + (one - rule.beta1) * gradient
    square[:] = rule.beta2 * square + (one - rule.beta2) * gradient * gradient
    values -= rate * mean / (np.sqrt(square) * correction + rule.eps)


class _Optimizer(NamedTuple):
    number: int  # enum quarry_optimizer
    state_dim: Callable[[int], int]
    step: Callable[[Rule, _Float32, _Float32, _Float32], None]


_OPTIMIZERS = {
    "adagrad": _Optimizer(0, lambda dim: dim, _adagrad),
    "sgd": _Optimizer(1, lambda dim: 0, _sgd),
    "adam": _Optimizer(2, lambda dim: 2 * dim + 1, _adam),
}


class _Gathered(NamedTuple):
    """The gradient of rows that a forward read."""

    ids: npt.NDArray[np.uint64]  # ascending, each once
    gradient: torch.Tensor  # [ids, dim]
    read: list[_quarry.EmbeddingRows]  # as the forward read them; empty once a step has changed them


class Embedding(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """torch.nn.Embedding over an embedding table of a database: vectors and the optimizer's state of each row are
    on disk, and a batch has those that it names.

    db, name         the table, made here where there is none; one that is there must have this shape and optimizer
    dim              elements of a vector
    num_embeddings   rows; None: a row a node
    optimizer        "adagrad", "sgd" or "adam" (which counts the steps of each row), with lr, eps and betas
    init, init_scale, seed   first values: "uniform" in [-scale, scale), "normal" or "zeros"
    dtype            of the vectors on disk: "float32" or "bfloat16"; in memory they are float32

    It has no parameters: forward(ids) reads rows, backward gathers their gradients here, and step() applies the
    optimizer to them and commits. Several backwards before a step add up. Any number of modules, threads and
    trainers over a server may train one table at a time: a step whose rows were written meanwhile reads them anew
    and applies its gradient, which is that of the older values, to the new ones, so that no update is lost (optimistic
    concurrency control). A module is for one thread at a time.

    What is committed is on disk after `save_checkpoint`, and when the database is closed.
    """

    def __init__(
        self,
        db: Database,
        name: str,
        dim: int,
        num_embeddings: int | None = None,
        *,
        optimizer: str = "adagrad",
        lr: float = 0.1,
        eps: float = 1e-10,
        betas: tuple[float, float] = (0.9, 0.999),
        init: str = "uniform",
        init_scale: float = 0.1,
        dtype: str = "float32",
        seed: int = 0,
    ) -> None:
        super().__init__()
        for what, given, known in (("optimizer", optimizer, _OPTIMIZERS), ("init", init, _INITS), ("dtype", dtype, _TYPES)):
            if given not in known:
                raise UsageError(f"{what} {given!r}: {', '.join(map(repr, known))}")
        self.db = db
        self.name = name
        self.embedding_dim = dim
        self.num_embeddings = db.num_nodes if num_embeddings is None else num_embeddings
        self.optimizer = optimizer
        self.lr = lr
        self.eps = eps
        self.betas = betas
        self._rule = _OPTIMIZERS[optimizer]
        self._gathered: list[_Gathered] = []
        if self._told() is None:
            try:
                _quarry.create_embeddings(
                    db._store, name, self.num_embeddings, dim, self._rule.number, _TYPES[dtype], _INITS[init], init_scale, seed
                )
            except AlreadyExists:  # another thread was faster
                pass
        shape = self._told()
        if shape != (self.num_embeddings, dim, self._rule.state_dim(dim)):
            rows, has_dim, state_dim = shape or (0, 0, 0)
            trained_with = next((known for known, rule in _OPTIMIZERS.items() if rule.state_dim(has_dim) == state_dim), "another optimizer")
            raise UsageError(
                f"embedding table '{name}' has {rows} rows of {has_dim} for {trained_with}, not {self.num_embeddings} of {dim} for {optimizer}: "
                "give what it has, or another name"
            )

    def _told(self) -> tuple[int, int, int] | None:
        for name, rows, dim, state_dim in self.db._store.describe()["embeddings"]:
            if name == self.name:
                return rows, dim, state_dim
        return None

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Vectors of `ids`, integers of any shape, in any order and more than once: float32 [*ids.shape, dim], on
        the device of `ids`. Each row is read once."""
        rows, positions = self._unique(ids)
        read = self.db._store.read_embeddings(self.name, rows)
        weight = torch.tensor(read.values, device=ids.device)
        if torch.is_grad_enabled():
            weight.requires_grad_()
            gathered, held = self._gathered, [read]

            def gather(leaf: torch.Tensor) -> None:
                if leaf.grad is not None:
                    gathered.append(_Gathered(rows, leaf.grad, held))
                    leaf.grad = None

            weight.register_post_accumulate_grad_hook(gather)  # type: ignore[no-untyped-call,unused-ignore]
        return torch.nn.functional.embedding(positions.to(ids.device).view(ids.shape), weight)

    def _unique(self, ids: torch.Tensor) -> tuple[npt.NDArray[np.uint64], torch.Tensor]:
        """Rows ascending, each once, and the position of every id among them."""
        flat = ids.detach().cpu().numpy().reshape(-1)
        if flat.dtype.kind not in "iu":
            raise UsageError(f"ids of type {ids.dtype} for embedding table '{self.name}': integers are wanted")
        if flat.size > 0 and (flat.min() < 0 or flat.max() >= self.num_embeddings):
            raise InvalidArgument(f"ids from {flat.min()} to {flat.max()}: embedding table '{self.name}' has {self.num_embeddings} rows, from 0 on")
        rows, positions = np.unique(flat, return_inverse=True)
        return rows.astype(np.uint64), torch.from_numpy(positions.astype(np.int64, copy=False))

    def step(self) -> int | None:
        """Applies what was gathered since the last step, and commits. The commit's timestamp; None when nothing
        was gathered. `Busy` when other trainers wrote the same rows before each of 100 attempts; after this and
        any other error the gradients are still there, for another step()."""
        gathered = len(self._gathered)
        if gathered == 0:
            return None
        rows, gradient, read = self._sum(self._gathered[:gathered])
        self._gathered[:gathered] = [_Gathered(rows, torch.from_numpy(gradient), [])]
        rule = Rule(np.float32(self.lr), np.float32(self.eps), np.float32(self.betas[0]), np.float32(self.betas[1]))
        for _ in range(_ATTEMPTS_MAX):
            if read is None:
                read = self.db._store.read_embeddings(self.name, rows)
            self._rule.step(rule, gradient, read.values, read.state)
            timestamp, _stale = self.db._store.commit_embeddings([(self.name, read)])
            if timestamp >= 0:
                del self._gathered[0]
                return timestamp
            read = None
        raise Busy(
            f"embedding table '{self.name}': other trainers wrote rows of this step before each of {_ATTEMPTS_MAX} attempts to commit it; "
            "call step() again, or let fewer trainers share these rows"
        )

    @staticmethod
    def _sum(gathered: list[_Gathered]) -> tuple[npt.NDArray[np.uint64], _Float32, _quarry.EmbeddingRows | None]:
        """The rows of all, the sum of their gradients, and the rows as they were read where one forward read them."""
        gradients = [one.gradient.detach().to("cpu", torch.float32).numpy() for one in gathered]
        if len(gathered) == 1:
            (one,) = gathered
            return one.ids, gradients[0], one.read.pop() if one.read else None
        rows = np.unique(np.concatenate([one.ids for one in gathered]))
        total = np.zeros((len(rows), gradients[0].shape[1]), np.float32)
        for one, gradient in zip(gathered, gradients):
            total[np.searchsorted(rows, one.ids)] += gradient
        return rows, total, None

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets what was gathered since the last step."""
        super().zero_grad(set_to_none)
        self._gathered.clear()

    def extra_repr(self) -> str:
        return f"'{self.name}', {self.num_embeddings}, {self.embedding_dim}, {self.optimizer}, lr={self.lr}"


def save_checkpoint(db: Database, name: str, module: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None, *, extra: Any = None) -> None:
    """Saves the run `name` in the database, in the place of its last checkpoint: state_dict of module and optimizer,
    and `extra` (numbers, texts, tensors, and lists and dicts of them), in one commit with all that was committed
    to embedding tables. After a crash both are as of this moment, or both as of the one before."""
    state = {"module": module.state_dict(), "optimizer": None if optimizer is None else optimizer.state_dict(), "extra": extra}
    buffer = io.BytesIO()
    torch.save(state, buffer)
    settings = json.dumps({"trainer": _TRAINER, "torch": torch.__version__})
    db._store.save_training(name, settings, buffer.getvalue(), True)


def load_checkpoint(db: Database, name: str, module: torch.nn.Module | None = None, optimizer: torch.optim.Optimizer | None = None) -> Any:
    """Loads the last checkpoint of the run `name` into module and optimizer; its `extra`. `NotFound` lists the runs.

    Embedding tables are not turned back: they are as of the last checkpoint when a process or server that had the
    database was killed, and as of their last commit when it ended as it should.
    """
    training = db._store.read_training(name)
    if not _is_ours(training.settings):
        raise UsageError(f"training run '{name}' is not one of quarry.torch: `quarry train --resume` goes on with its own")
    state = torch.load(io.BytesIO(training.state), map_location="cpu", weights_only=True)
    if optimizer is not None and state["optimizer"] is None:
        raise UsageError(f"training run '{name}' was saved without an optimizer")
    if module is not None:
        module.load_state_dict(state["module"])
    if optimizer is not None:
        optimizer.load_state_dict(state["optimizer"])
    return state["extra"]


def _is_ours(settings: str) -> bool:
    try:
        told = json.loads(settings)
    except ValueError:
        return False
    return isinstance(told, dict) and told.get("trainer") == _TRAINER
