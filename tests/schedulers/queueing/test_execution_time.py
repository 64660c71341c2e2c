from inferd.schedulers.queueing.timing import COMPUTES, FADES, ExecutionTime


def test_who_computes_is_measured_in_cpu_time_though_others_interrupt():
    meter = ExecutionTime()
    assert meter.took_ns(1000, 990) == 990
    assert meter.took_ns(5000, 1000) == 1000


def test_who_waits_is_measured_in_wall_time():
    meter = ExecutionTime()
    assert meter.took_ns(1000, 10) == 1000
    assert meter.took_ns(1000, round(1000 * COMPUTES) - 1) == 1000


def test_cpu_time_is_never_more_than_wall_time():
    assert ExecutionTime().took_ns(1000, 1005) == 1000  # it holds what the joining took, too


def test_where_nobody_knows_the_cpu_time_wall_time_is_taken():
    assert ExecutionTime().took_ns(1000, 0) == 1000


def test_an_execution_that_did_not_take_place_took_no_time():
    meter = ExecutionTime()
    assert meter.took_ns(0, 0) == meter.took_ns(-7, 5) == 0
    assert meter.took_ns(1000, 0) == 1000


def test_a_model_that_computes_no_longer_is_believed_after_a_while():
    meter = ExecutionTime()
    meter.took_ns(1000, 1000)
    took = [meter.took_ns(1000, 100) for _ in range(round(1 / FADES))]
    assert took[0] == 100
    assert took[-1] == 1000
