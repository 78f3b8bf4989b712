"""``take_while``: elements up to the first for which a predicate is not true."""

import pytest

from aiostream_data import Dataset, PlanError, StageBuildError
from aiostream_data.testing.resume import resumes_everywhere


def below_six(number: int) -> bool:
    return int(number) < 6


def always(number: object) -> bool:
    return True


def never(number: object) -> bool:
    return False


def fails_at_three(number: int) -> bool:
    if int(number) == 3:
        raise ValueError("three")
    return True


def short(batch: object) -> bool:
    return len(batch) == 3  # type: ignore[arg-type]


SIX = Dataset.range(10).take_while(below_six)


def test_the_predicate_is_called_in_order_and_not_behind_the_end() -> None:
    asked: list[int] = []

    def small(number: int) -> bool:
        asked.append(int(number))
        return number < 2

    assert list(Dataset.from_tensor_slices([0, 1, 2, 1, 0]).take_while(small)) == [0, 1]
    assert asked == [0, 1, 2]


def test_values_end_at_the_first_that_is_not_wanted() -> None:
    assert list(SIX) == [0, 1, 2, 3, 4, 5]
    assert list(Dataset.from_tensor_slices([1, 9, 2]).take_while(below_six)) == [1]


def test_a_result_may_be_empty() -> None:
    assert list(Dataset.range(10).take_while(never)) == []


def test_everything_may_be_wanted() -> None:
    assert list(Dataset.range(10).take_while(always)) == list(range(10))


@pytest.mark.timeout(20)
def test_an_endless_input_ends_at_once() -> None:
    endless = Dataset.range(10).repeat().enumerate()
    assert [number for number, _ in endless.take_while(lambda number, _: number < 12)] == list(range(12))


def test_the_same_on_the_thread_of_the_caller() -> None:
    assert list(SIX.repeat(2).debug()) == [0, 1, 2, 3, 4, 5] * 2


def test_the_same_in_another_process() -> None:
    assert list(SIX.in_subprocess().batch(6)) == [pytest.approx([0, 1, 2, 3, 4, 5])]


def test_elements_go_through_as_they_are() -> None:
    assert SIX.element_spec == Dataset.range(10).element_spec
    assert SIX.cardinality() == -2
    assert "take_while(below_six" in SIX.explain()


def test_elements_before_a_failure_are_delivered() -> None:
    with Dataset.range(10).take_while(fails_at_three).open() as loader:
        assert [next(loader) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(ValueError, match="three"):
            next(loader)


def test_an_error_names_stage_function_and_record() -> None:
    with pytest.raises(ValueError, match="three") as caught:
        list(Dataset.range(10).take_while(fails_at_three))
    notes = "\n".join(caught.value.__notes__)
    assert "stage: take_while, written at" in notes
    assert "fails_at_three" in notes
    assert "range record 3" in notes


def stops(number: int) -> bool:
    raise StopIteration(str(number))


def test_a_predicate_that_raises_stop_iteration_has_failed() -> None:
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        list(Dataset.range(10).take_while(stops))


def test_answers_that_are_no_bool_are_refused() -> None:
    with pytest.raises(PlanError, match=r"predicate of take_while\(\) must return a scalar bool"):
        list(Dataset.range(10).take_while(int))  # type: ignore[arg-type]


async def awaited(number: int) -> bool:
    return True


def test_predicates_that_cannot_be_called_are_refused_where_they_are_written() -> None:
    with pytest.raises(PlanError, match=r"take_while\(\) needs a function"):
        Dataset.range(3).take_while(3)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="coroutine function"):
        Dataset.range(3).take_while(awaited)  # type: ignore[arg-type]
    with pytest.raises(StageBuildError, match="takes 2 arguments"):
        list(Dataset.range(3).take_while(lambda one, two: True))


@pytest.mark.parametrize(
    "dataset",
    [
        SIX,
        Dataset.range(10).take_while(always),
        SIX.batch(4),
        SIX.repeat(3),
        SIX.shuffle(4, seed=1),
        Dataset.range(10).batch(3).take_while(short),
        Dataset.range(10).repeat(2).take_while(below_six),
        Dataset.range(20).shuffle(3, seed=1).take_while(lambda number: number != 11),
        Dataset.range(20).filter(lambda number: number % 2 == 0).take_while(lambda number: number < 13),
        Dataset.range(30).take_while(lambda number: number < 21).shuffle(4, seed=1).batch(3).repeat(2),
    ],
    ids=[
        "alone",
        "all",
        "batch",
        "repeat",
        "shuffle",
        "of batches",
        "of repeated",
        "of shuffled",
        "of filtered",
        "all above",
    ],
)
def test_take_while_resumes_after_every_element(dataset: Dataset[int]) -> None:
    resumes_everywhere(dataset)
