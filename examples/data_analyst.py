#!/usr/bin/env python3
"""A data analyst: puts a CSV file into a sandbox of the template code-interpreter-v1, lets a model write Python for a question about
it, runs that there cell by cell, and keeps the answer and the charts.

    scripts/template build code-interpreter-v1
    eval "$(space e2b env)" && pip install e2b-code-interpreter
    examples/data_analyst.py sales.csv "which month was the best?" --charts ./charts

E2B's code interpreter SDK, unmodified.
"""
import argparse
import base64
import os
import re
import sys

from e2b_code_interpreter import Sandbox

import model

RULES = """You answer questions about /home/user/data.csv. Answer with one block ```python … ``` and nothing else, to have it run: its
variables stay for the next block, and you are told what it printed, its result and its errors. When you know the answer, write it
without a block."""
MOST_STEPS, MOST_OUTPUT = 20, 8000


def told(execution):
    parts = ["".join(execution.logs.stdout), "".join(execution.logs.stderr)]
    for result in execution.results:
        if result.chart:
            parts.append(f"a {result.chart.type.value} chart '{result.chart.title}' was shown")
        elif result.text:
            parts.append(result.text)
    if execution.error:
        parts.append(f"{execution.error.name}: {execution.error.value}\n{execution.error.traceback}")
    return "\n".join(part for part in parts if part)[:MOST_OUTPUT] or "(nothing was printed)"


def keep_charts(execution, folder, count):
    for result in execution.results:
        if folder and result.png:
            os.makedirs(folder, exist_ok=True)
            count += 1
            with open(f"{folder}/chart-{count}.png", "wb") as file:
                file.write(base64.b64decode(result.png))
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv")
    parser.add_argument("question")
    parser.add_argument("--charts", help="a folder for pictures")
    parser.add_argument("--script", help="replies in place of a model's, as JSON")
    options = parser.parse_args()
    chosen, charts = model.choose(options.script), 0
    with Sandbox.create(timeout=1800, metadata={"agent": "analyst"}) as sandbox:
        with open(options.csv, "rb") as file:
            sandbox.files.write("/home/user/data.csv", file.read())
        messages = [{"role": "system", "content": RULES}, {"role": "user", "content": options.question}]
        for _ in range(MOST_STEPS):
            reply = chosen.ask(messages)
            block = re.search(r"```(?:python)?\n(.*?)```", reply, re.DOTALL)
            if not block:
                print(reply)
                return 0
            execution = sandbox.run_code(block.group(1), timeout=300)
            charts = keep_charts(execution, options.charts, charts)
            print(f"> {block.group(1)}\n{told(execution)}", file=sys.stderr)
            messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": told(execution)}]
    print(f"the model had no answer after {MOST_STEPS} steps", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
