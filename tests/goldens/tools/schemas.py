from typing import Any, Literal, Optional, Union


def multiply(a: int, b: int) -> int:
    """
    Multiplies two numbers.

    Args:
        a: One number.
        b: The other.
    """
    return a * b


def search(query: str, limit: int = 10, tags: Optional[list[str]] = None) -> list[str]:
    """
    Searches the notes.

    Everything is found.

    Args:
        query: What to look for, which may
            be several words.
        limit: How many results.
        tags: Only notes with these tags.

    Returns:
        The notes, best first.
    """
    return [query] * limit


async def weather(city: str, unit: Literal["C", "F"] = "C", exact: bool = False) -> dict:
    """
    Says what the weather is.

    Args:
        city: The city.
        unit: The unit (choices: ["C", "F"])
        exact: With fractions.

    Returns:
        dict: The weather.
    """
    return {"city": city, "unit": unit}


def mixed(x: Union[int, str], y: float | None, z: dict[str, int], w: Any) -> None:
    """Does nothing.

    Args:
        x: A number or a text.
        y: A fraction.
        z: Counts.
        w: Anything.
    """


def nothing() -> str:
    """
    Takes nothing.
    """
    return "x"
