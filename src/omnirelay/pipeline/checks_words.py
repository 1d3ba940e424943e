"""Small pieces that the statements are put together from."""


def when(column: str, results: dict[str, str], otherwise: str = "NULL") -> str:
    """A CASE over the values of a column."""
    cases = " ".join(f"WHEN '{value}' THEN {result}" for value, result in results.items())
    return f"CASE {column} {cases} ELSE {otherwise} END"
