"""Of what kind a value in a scenario is."""

from __future__ import annotations

from collections.abc import Callable

# What may be there under which key.
Keys = dict[str, Callable[[object], bool]]


def is_integer(value: object) -> bool:
    return type(value) is int


def is_number(value: object) -> bool:
    return type(value) in (int, float)


def is_text(value: object) -> bool:
    return type(value) is str


def is_answer(value: object) -> bool:
    return is_text(value) or is_number(value)


def is_truth(value: object) -> bool:
    return type(value) is bool


def is_true(value: object) -> bool:
    return value is True


def is_table(value: object) -> bool:
    return isinstance(value, dict)


def is_table_of(keys: Keys) -> Callable[[object], bool]:
    def is_it(value: object) -> bool:
        return isinstance(value, dict) and all(
            key in keys and keys[key](item) for key, item in value.items()
        )

    return is_it


def are_tables(value: object) -> bool:
    return isinstance(value, list) and all(map(is_table, value))


def are_names(value: object) -> bool:
    return isinstance(value, list) and all(map(is_text, value))


def are_words(value: object) -> bool:
    return isinstance(value, dict) and all(map(is_text, value.values()))


def are_counts(value: object) -> bool:
    return isinstance(value, dict) and all(map(is_integer, value.values()))


def are_numbers(value: object) -> bool:
    return isinstance(value, dict) and all(map(is_number, value.values()))
