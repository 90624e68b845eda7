from medley import config
from medley.plan import Plan
from medley.variables import of_toolkit, variables

HOSTS = config.hosts()


def test_gpus_are_counted_as_nvidia_smi_does() -> None:
    plan = Plan(gpus=(2, 0))
    found = {each.name: each.value for each in variables(plan, HOSTS["rtx"], {}, local=False)}
    assert (found["CUDA_DEVICE_ORDER"], found["CUDA_VISIBLE_DEVICES"]) == ("PCI_BUS_ID", "2,0")
    assert "HF_HUB_OFFLINE" not in found


def test_a_cpu_has_no_cuda() -> None:
    found = {each.name for each in variables(Plan(), HOSTS["cpu"], {}, local=True)}
    assert not [name for name in found if name.startswith("CUDA")]
    assert "HF_HUB_OFFLINE" in found


def test_the_toolkits_programs_come_first() -> None:
    found = {
        each.name: each.value for each in of_toolkit({"CUDA_HOME": "/c"}, ["/e/bin", "/c/bin"], "/usr/bin")
    }
    assert found == {"CUDA_HOME": "/c", "PATH": "/e/bin:/c/bin:/usr/bin"}


def test_every_variable_has_its_reason_and_none_is_the_libraries_path() -> None:
    found = [*variables(Plan(), HOSTS["rtx"], {}, local=True), *of_toolkit({"A": "1"}, ["/x"], "/y")]
    assert all(each.why for each in found)
    assert "LD_LIBRARY_PATH" not in {each.name for each in found}


def test_compilers_are_bounded_and_the_user_may_say_otherwise() -> None:
    plan = Plan(compile_jobs=3)
    ours = {each.name: each for each in variables(plan, HOSTS["spark"], {}, local=False)}
    assert (ours["MAX_JOBS"].value, ours["FLASHINFER_NVCC_THREADS"].value) == ("3", "1")
    theirs = {each.name: each for each in variables(plan, HOSTS["spark"], {"MAX_JOBS": "9"}, local=False)}
    assert theirs["MAX_JOBS"].value == "9"
    assert theirs["MAX_JOBS"].why.startswith("set by you; medley would say 3")
    assert "MAX_JOBS" not in {each.name for each in variables(plan, HOSTS["cpu"], {}, local=False)}
