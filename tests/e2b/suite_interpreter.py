"""The unmodified Python SDK of E2B's code interpreter. Started by `tests/e2b/run`, which sets E2B_*."""
import asyncio
import base64
import sys

from e2b import NotFoundException, SandboxException, TimeoutException
from e2b_code_interpreter import AsyncSandbox, Sandbox
from e2b_code_interpreter.charts import BarChart, LineChart, PieChart

from checks import check, named, raises, same, tell

s = None


@check("Sandbox.create")
def _():
    global s
    s = Sandbox.create(timeout=1200, envs={"GLOBAL": "g"})


if s is None:
    sys.exit(1)


def run(code, **options):
    return s.run_code(code, **{"timeout": 240, "request_timeout": 240, **options})


@check("Sandbox.run_code")
def _():
    e = run("x = 6\nx * 7")
    same((e.text, e.error, e.execution_count), ("42", None, 1))
    same(run("x + 1").text, "7")
    same("".join(run("!echo from the shell").logs.stdout), "from the shell\r\n")  # IPython gives it a terminal, and passes on what came in pieces


@check("Sandbox.run_code streams")
def _():
    out, err, results = [], [], []
    run("import sys, time\nfor i in range(3):\n    print(i, flush=True); time.sleep(0.4)\nprint('no', file=sys.stderr)\n'end'",
        on_stdout=lambda m: out.append(m.line), on_stderr=lambda m: err.append(m.line), on_result=results.append)
    same(("".join(out), "".join(err), [r.text for r in results]), ("0\n1\n2\n", "no\n", ["end"]))


@check("Sandbox.run_code with an error")
def _():
    e = run("1 / 0")
    same((e.error.name, e.error.value), ("ZeroDivisionError", "division by zero"))


@check("Sandbox.run_code with charts")
def _():
    e = run("import matplotlib.pyplot as plt\nplt.bar(['A', 'B'], [1, 2], label='Sold')\nplt.title('T')\nplt.show()")
    chart = e.results[0].chart
    assert isinstance(chart, BarChart), chart
    same((chart.title, [(b.label, b.group, b.value) for b in chart.elements]), ("T", [("A", "Sold", 1.0), ("B", "Sold", 2.0)]))
    assert base64.b64decode(e.results[0].png).startswith(b"\x89PNG")
    line = run("plt.plot([1, 2], [3, 4], label='l')\nplt.show()").results[0].chart
    assert isinstance(line, LineChart) and [tuple(p) for p in line.elements[0].points] == [(1, 3), (2, 4)], line.elements
    assert isinstance(run("plt.pie([1, 3], labels=['a', 'b'])\nplt.show()").results[0].chart, PieChart)


@check("Sandbox.run_code with a table")
def _():
    r = run("import pandas as pd\npd.DataFrame({'a': [1, 2]})").results[0]
    same(r.data, {"a": [1, 2]})
    assert "<table" in r.html and "data" in r.formats()


@check("Sandbox.run_code in other languages")
def _():
    same(run("const a: number = 1; a + 1", language="ts").text, "2")
    same(run("[1, 2].map((x) => x * 2)", language="js").results[0].json, [2, 4])
    same("".join(run("echo $GLOBAL", language="bash").logs.stdout), "g\n")


@check("Sandbox.run_code with an environment")
def _():
    same((run("import os; os.getenv('OWN')", envs={"OWN": "o"}).text, run("os.getenv('OWN', 'none')").text), ("o", "none"))


@check("Sandbox.run_code past its time")
def _():
    raises(TimeoutException, lambda: run("kept = 1\nimport time; time.sleep(100)", timeout=3))
    same(run("kept + 1").text, "2")


context = None


@check("Sandbox.create_code_context")
def _():
    global context
    context = s.create_code_context(language="python", cwd="/tmp", request_timeout=240)
    same((run("import os; os.getcwd()", context=context).text, run("x", context=context).error.name), ("/tmp", "NameError"))
    raises(SandboxException, lambda: s.create_code_context(cwd="/not/there"))


@check("Sandbox.list_code_contexts")
def _():
    same(s.list_code_contexts()[-1].id, context.id)


@check("Sandbox.restart_code_context")
def _():
    run("y = 1", context=context)
    s.restart_code_context(context.id)
    same(run("y", context=context).error.name, "NameError")


@check("Sandbox.remove_code_context")
def _():
    s.remove_code_context(context.id)
    raises(NotFoundException, lambda: run("1", context=context))


@check("Sandbox.pause keeps state")
def _():
    run("kept = {'a': 1}")
    s.pause()
    s.connect(timeout=600)
    same(run("kept").results[0].json, {"a": 1})


@check("AsyncSandbox.run_code")
def _():
    async def both():
        one = await AsyncSandbox.connect(s.sandbox_id)
        first, second = await asyncio.gather(one.run_code("1 + 1"), one.run_code("2 + 2"))
        return first.text, second.text

    same(asyncio.run(both()), ("2", "4"))


@check("Sandbox.kill")
def _():
    same(s.kill(), True)
    raises(TimeoutException, lambda: run("1"))


for method in ("run_code", "create_code_context", "list_code_contexts", "restart_code_context", "remove_code_context"):
    if f"Sandbox.{method}" not in named:
        tell(f"Sandbox.{method}", "not checked")
