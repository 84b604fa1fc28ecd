"""neighbour.py URL SANDBOX EVERY (the key on the first line of the input): times `true` in a sandbox, over and over, until the input ends; prints
{"times": [seconds], "failed": N}. A process of its own, so that what attacks and what measures do not share a Python."""

import json
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "system"))

from api_client import Api, Sandbox  # noqa: E402

box = Sandbox(Api(sys.argv[1], sys.stdin.readline().strip()), sys.argv[2])
times, failed, over = [], 0, threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
print("ready", flush=True)
while not over.is_set():
    begun = time.monotonic()
    try:
        box.run(["true"], timeout=30)
        times.append(time.monotonic() - begun)
    except Exception:
        failed += 1
    over.wait(float(sys.argv[3]))
print(json.dumps({"times": times, "failed": failed}))
