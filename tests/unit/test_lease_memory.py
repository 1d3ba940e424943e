"""Memory answers repeats for a while, forgets the oldest, and can be stored in order."""

from hypothesis import given
from hypothesis import strategies as st

from omnirelay.lease.memory import Memory

steps = st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 3)), max_size=40)


@given(steps, st.integers(1, 4), st.integers(1, 6))
def test_it_remembers_like_a_list_cut_at_its_front(
    drawn: list[tuple[str, int]], most: int, window: int
) -> None:
    memory: Memory[str, int] = Memory()
    plain: list[tuple[int, str, int]] = []
    now = 0
    for number, (key, ms) in enumerate(drawn):
        now += ms
        memory.forget_before(now - window)
        memory.put(key, number, now, most)
        plain = [entry for entry in plain if entry[0] >= now - window]
        known = [place for place, entry in enumerate(plain) if entry[1] == key]
        if known:
            plain[known[0]] = (plain[known[0]][0], key, number)
        else:
            plain = [*plain, (now, key, number)][-most:]
        assert memory.items() == plain
        assert len(memory) == len(plain)
        assert memory.get(key) == number


def test_an_entry_is_recalled_while_it_is_young_enough() -> None:
    memory: Memory[str, int] = Memory()
    memory.put("r", 7, at=100, most=10)
    assert memory.recall("r", since=100) == 7
    assert memory.recall("r", since=101) is None
    assert memory.recall("s", since=0) is None


def test_a_repeat_does_not_make_an_entry_younger() -> None:
    memory: Memory[str, int] = Memory()
    memory.put("r", 7, at=100, most=10)
    memory.put("r", 8, at=200, most=10)
    assert memory.get("r") == 8
    assert memory.recall("r", since=101) is None
