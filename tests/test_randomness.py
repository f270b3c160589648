"""Where noise comes from: the same distributions as NumPy's, from a stream that nobody can wind back."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import signal
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats

from dither.errors import ParameterError
from dither.randomness import RandomStream, check_seed, generator, public_seed
from dither.stream_bits import StreamBits

KEY = bytes(range(32))
# A fixed key makes these tests repeatable; a wrong law would show as a p-value far below this.
MIN_P = 1e-4


def keyed(key: bytes = KEY) -> np.random.Generator:
    return np.random.Generator(StreamBits(RandomStream(key)))


def test_a_seed_gives_numpy_s_own_generator_as_ever() -> None:
    for seed, place in ((0, ()), (7, (1,)), (2**40, (3, 4))):
        ours, theirs = generator(seed, *place), np.random.default_rng([seed, *place])
        assert np.array_equal(ours.integers(2**63, size=50), theirs.integers(2**63, size=50))
    assert generator(7).random() == np.random.default_rng(7).random()
    assert public_seed(7) == 7


def test_words_are_the_stream_s_in_order_and_used_once() -> None:
    """Across several refills of the buffer, and whatever is asked for."""
    words = RandomStream(KEY).words(10_000)
    rng = keyed()
    assert np.array_equal(rng.random(5_000), (words[:5_000] >> np.uint64(11)) * 2.0**-53)
    assert np.array_equal(rng.integers(2**64, size=1_000, dtype=np.uint64), words[5_000:6_000])
    halves = np.frombuffer(rng.bytes(4_000), "<u4")
    assert np.array_equal(halves, words[6_000:7_000] >> np.uint64(32))
    bits = StreamBits(RandomStream(KEY))
    np.random.Generator(bits).random(10)  # type: ignore[arg-type]
    assert not np.isin(words[:10], bits._words).any(), "used words are erased"
    assert np.isin(words[10:20], bits._words).all()


def test_the_same_key_gives_the_same_numbers_another_key_others() -> None:
    first, again, other = (keyed(key).normal(size=1_000) for key in (KEY, KEY, bytes(32)))
    assert np.array_equal(first, again)
    assert abs(np.corrcoef(first, other)[0, 1]) < 4 / np.sqrt(1_000)


def test_without_a_seed_no_two_generators_agree() -> None:
    drawn = [generator(None, 1).bytes(32) for _ in range(200)]
    assert len(set(drawn)) == 200
    assert {len(d) for d in drawn} == {32}
    assert len({public_seed(None) for _ in range(10)}) > 1


def test_uniforms_are_uniform_and_independent() -> None:
    draws = keyed().random(400_000)
    assert 0 <= draws.min() < draws.max() < 1
    cells = (draws * 64).astype(int)
    assert stats.chisquare(np.bincount(cells, minlength=64)).pvalue > MIN_P
    follow = np.bincount(cells[:-1] * 64 + cells[1:], minlength=4_096)
    assert stats.chisquare(follow).pvalue > MIN_P
    bits = np.unpackbits(
        np.frombuffer(keyed().bytes(400_000), np.uint8).reshape(-1, 4), axis=1
    ).mean(axis=0)
    assert np.abs(bits - 0.5).max() < 5 * 0.5 / np.sqrt(100_000)


@pytest.mark.parametrize(
    "n", [20, 3_000]
)  # NumPy inverts for small means and rejects for large ones
def test_binomials_have_their_law_and_a_wrong_one_is_noticed(n: int) -> None:
    draws = keyed().binomial(n, 0.3, 200_000)
    edges = stats.binom.ppf(np.linspace(0, 1, 21)[1:-1], n, 0.3)
    found = np.bincount(
        np.searchsorted(np.unique(edges), draws), minlength=len(np.unique(edges)) + 1
    )
    for p, fits in ((0.3, True), (0.303 if n > 1_000 else 0.31, False)):
        reached = np.concatenate([[0], stats.binom.cdf(np.unique(edges), n, p), [1]])
        assert bool(stats.chisquare(found, np.diff(reached) * len(draws)).pvalue > MIN_P) is fits


def test_normals_multinomials_and_integers_have_their_laws() -> None:
    rng = keyed()
    assert stats.kstest(rng.standard_normal(100_000), "norm").pvalue > MIN_P
    shares = np.array([0.5, 0.25, 0.2, 0.05])
    assert stats.chisquare(rng.multinomial(100_000, shares), shares * 100_000).pvalue > MIN_P
    assert stats.chisquare(np.bincount(rng.integers(0, 37, 100_000), minlength=37)).pvalue > MIN_P
    firsts = [rng.permutation(6)[0] for _ in range(6_000)]
    assert stats.chisquare(np.bincount(firsts, minlength=6)).pvalue > MIN_P


def test_threads_share_a_generator_without_sharing_a_word() -> None:
    """Each call holds the generator's lock while it draws, so no word is given out twice."""
    rng = keyed()
    with ThreadPoolExecutor(4) as pool:
        parts = list(
            pool.map(lambda _: rng.integers(2**64, size=3_000, dtype=np.uint64), range(40))
        )
    drawn = np.concatenate(parts)
    assert np.array_equal(np.sort(drawn), np.sort(RandomStream(KEY).words(120_000)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_draws_other_noise() -> None:
    code = (
        "import os; from dither.randomness import generator; rng = generator(None); rng.random(); rng2 = generator(None)\n"
        "read, write = os.pipe(); pid = os.fork()\n"
        "mine = rng.bytes(32) + rng2.bytes(32)\n"
        "if pid == 0: os.write(write, mine); os._exit(0)\n"
        "os.waitpid(pid, 0); theirs = os.read(read, 64)\n"
        "print(len(theirs), mine[:32] != theirs[:32] and mine[32:] != theirs[32:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.split() == ["64", "True"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize(
    ("made", "same"),
    [
        ("RandomStream.from_system()", False),
        ("RandomStream.from_generator(generator(None))", False),
        ("RandomStream.from_generator(generator(7))", True),
        ("RandomStream.from_seed(7)", True),
        ("RandomStream(bytes(32))", True),
    ],
)
def test_a_stream_goes_on_in_a_forked_process_only_if_it_is_repeatable(
    made: str, same: bool
) -> None:
    """Drawn before and after the fork; in a process of its own, which no thread of the tests disturbs."""
    code = (
        "import os; from dither.randomness import RandomStream; from dither.randomness import generator\n"
        f"stream = {made}; before = stream(32); read, write = os.pipe(); pid = os.fork(); mine = stream(32)\n"
        "if pid == 0: os.write(write, mine + stream(32)); os._exit(0)\n"
        "os.waitpid(pid, 0); theirs = os.read(read, 64)\n"
        "print(len({before, mine, theirs[:32], theirs[32:], stream(32)}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert int(done.stdout) == (3 if same else 5), (
        "before, the parent's two, and the child's two unless they are the same"
    )


def test_a_generator_of_noise_cannot_be_copied() -> None:
    rng = generator(None)
    for way in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied"):
            way(rng)


def test_a_generator_goes_when_nobody_needs_it() -> None:
    bits = StreamBits(RandomStream(KEY))
    rng = np.random.Generator(bits)  # type: ignore[arg-type]
    gone = weakref.ref(bits)
    del bits
    gc.collect()
    assert rng.random() == keyed().random(), "the generator keeps what it draws from"
    del rng
    gc.collect()
    assert gone() is None


BROKEN = """
import numpy as np
from dither.randomness import RandomStream
from dither.stream_bits import StreamBits
class Broken(RandomStream):
    failures = 0
    def words(self, count, dtype=np.uint64):
        Broken.failures += 1
        {failure}
        return super().words(count, dtype)
rng = np.random.Generator(StreamBits(Broken(bytes(32))))
"""


@pytest.mark.slow
def test_no_number_is_given_out_when_the_source_fails() -> None:
    """Compiled code cannot raise; a buffer of zeros would be published as private."""
    code = BROKEN.format(failure="raise OSError('no randomness')") + "print(rng.random(3))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == -signal.SIGABRT
    assert done.stdout == ""
    assert "no randomness" in done.stderr


@pytest.mark.slow
def test_a_signal_while_drawing_comes_through_and_spoils_nothing() -> None:
    """Its handler runs after the draw, whatever it raises, and is the handler again that it was."""
    code = BROKEN.format(failure="if Broken.failures == 1: signal.raise_signal(number)") + (
        "import signal\n"
        "class Late(Exception): pass\n"
        "def late(*_): raise Late\n"
        "signal.signal(signal.SIGALRM, late)\n"
        "whole = np.random.Generator(StreamBits(RandomStream(bytes(32)))).random(3)\n"
        "for number, error in ((signal.SIGINT, KeyboardInterrupt), (signal.SIGALRM, Late)):\n"
        "    Broken.failures = 0\n"
        "    rng = np.random.Generator(StreamBits(Broken(bytes(32))))\n"
        "    before = signal.getsignal(number)\n"
        "    drawn = np.zeros(3)\n"
        "    try: rng.random(out=drawn)\n"
        "    except error: print('came', np.array_equal(drawn, whole), signal.getsignal(number) is before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.split() == ["came", "True", "True"] * 2
    assert not done.stderr


@pytest.mark.slow
def test_no_signal_at_any_moment_of_a_draw_is_lost() -> None:
    """Wherever it strikes: before, in and after the callback that refills the buffer."""
    code = (
        "import signal, time\n"
        "from dither.randomness import generator\n"
        "class Late(Exception): pass\n"
        "def late(*_): raise Late\n"
        "signal.signal(signal.SIGALRM, late)\n"
        "rng = generator(None); rng.random(10); came = 0\n"
        "for i in range(100):\n"
        "    end = time.monotonic() + 20\n"
        "    try:\n"
        "        signal.setitimer(signal.ITIMER_REAL, 0.003 + 0.0001 * (i % 40))\n"
        "        while time.monotonic() < end: rng.random(300_000)\n"
        "    except Late: came += 1\n"
        "print(came)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "100", "")


@pytest.mark.parametrize("seed", [-1, True, 1.5, "7"])
def test_a_seed_is_a_whole_number(seed: object) -> None:
    with pytest.raises(ParameterError, match="seed must be a whole number"):
        check_seed(seed)  # type: ignore[arg-type]
