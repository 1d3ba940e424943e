"""Arrow columns to Python lists, a whole column at a time: the way a fold can afford."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnirelay.model.items import ANONYMOUS, Payload

_DEFAULTS = {word: word for word in (ANONYMOUS, Payload("", "").payload_encoding)}
Values = list[Any]  # Any: one column's values; who asks for it knows its type


class Columns:
    """Some rows of named columns. One that is missing is all null."""

    def __init__(self, arrays: dict[str, pa.Array], count: int) -> None:
        self._arrays = arrays
        self.count = count

    @classmethod
    def of_batch(cls, batch: pa.RecordBatch) -> "Columns":
        return cls(dict(zip(batch.schema.names, batch.columns, strict=True)), batch.num_rows)

    @classmethod
    def of_structs(cls, structs: pa.StructArray) -> "Columns":
        names = [structs.type.field(at).name for at in range(structs.type.num_fields)]
        return cls(dict(zip(names, structs.flatten(), strict=True)), len(structs))

    def take(self, rows: pa.Array) -> "Columns":
        taken = {name: array.take(rows) for name, array in self._arrays.items()}
        return Columns(taken, len(rows))

    def only(self, names: tuple[str, ...]) -> "Columns":
        kept = {name: self._arrays[name] for name in names if name in self._arrays}
        return Columns(kept, self.count)

    def texts(self, name: str) -> Values:
        """Strings, or bytes, or None."""
        array = self._arrays.get(name)
        if array is None or array.null_count == self.count:
            return [None] * self.count
        return array.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]

    def words(self, name: str) -> Values:
        """Strings of which there are few: equal ones are one object, and so cost no room. One that
        is a default is the very default, which is how an encoder knows that it may leave it out."""
        array = self._arrays.get(name)
        if array is None or array.null_count == self.count:
            return [None] * self.count
        encoded = array.dictionary_encode()
        known = [_DEFAULTS.get(word, word) for word in encoded.dictionary.to_pylist()]
        known.append(None)  # the code -1 of a null finds it
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).tolist()
        return [known[code] for code in codes]

    def numbers(self, name: str) -> Values:
        """Whole numbers; null is 0, as the journal leaves a 0 out."""
        array = self._arrays.get(name)
        if array is None or array.null_count == self.count:
            return [0] * self.count
        filled = array.fill_null(0) if array.null_count else array
        return filled.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]

    def numbers_or_none(self, name: str) -> Values:
        array = self._arrays.get(name)
        return [None] * self.count if array is None else array.to_pylist()

    def flags(self, name: str) -> Values:
        array = self._arrays.get(name)
        return [False] * self.count if array is None else array.fill_null(False).to_pylist()

    def times(self, name: str) -> Values:
        """Milliseconds; null is 0."""
        array = self._arrays.get(name)
        if array is None or array.null_count == self.count:
            return [0] * self.count
        ms = array.cast(pa.timestamp("ms", array.type.tz), safe=False).cast(pa.int64())
        filled = ms.fill_null(0) if ms.null_count else ms
        return filled.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]

    def maps(self, name: str) -> Values:
        """Dictionaries of text, or None."""
        array = self._arrays.get(name)
        if array is None or array.null_count == self.count:
            return [None] * self.count
        pairs = list(zip(array.keys.to_pylist(), array.items.to_pylist(), strict=True))
        ends, present = array.offsets.to_pylist(), array.is_valid().to_pylist()
        return [
            dict(pairs[ends[at] : ends[at + 1]]) if is_there else None
            for at, is_there in enumerate(present)
        ]

    def lists(self, name: str) -> tuple["Columns", list[int]]:
        """What the lists of structs hold, all of them in a row, and where each list ends: the list
        of row `i` is from `ends[i]` up to `ends[i + 1]`."""
        array = self._arrays[name]
        return Columns.of_structs(array.values), array.offsets.to_pylist()

    def rows_of_each(self, name: str) -> dict[str, pa.Array]:
        """Which rows hold each value of a text column, in order."""
        encoded = self._arrays[name].dictionary_encode()
        words = encoded.dictionary.to_pylist()
        return {
            word: pc.indices_nonzero(pc.equal(encoded.indices, code))
            for code, word in enumerate(words)
        }
