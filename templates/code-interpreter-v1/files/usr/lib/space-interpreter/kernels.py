"""Running kernels. Each gives the events of one cell at a time, as pairs of a kind and its fields:

    ("count", n)  ("stream", (name, text))  ("result", (data, is_main))  ("error", (name, value, traceback))

and raises KernelDied when the process is gone."""
import asyncio
import json
import os
import queue
import shutil
import signal
import tempfile
import time

from jupyter_client.manager import AsyncKernelManager

START_LIMIT_S = 400  # on a machine that does much else
DRAIN_S = 0.05
HOME = os.path.expanduser("~")


class KernelDied(Exception):
    pass


class JupyterKernel:
    """Python and bash, by Jupyter's protocol over sockets of the user's runtime folder."""

    def __init__(self, language):
        self.name = {"python": "python3"}.get(language, language)
        self.manager = self.client = None
        self.folder, self.stopped = "", False

    async def start(self, cwd, env):
        # Sockets with absolute names: the kernel has another folder than this process.
        self.folder = tempfile.mkdtemp(prefix="kernel-")
        self.manager = AsyncKernelManager(kernel_name=self.name, transport="ipc", ip=f"{self.folder}/socket", connection_file=f"{self.folder}/connection.json")
        await self.manager.start_kernel(cwd=cwd, env=env)
        self.client = self.manager.client()
        self.client.start_channels(stdin=False, hb=False)
        try:
            await self.client.wait_for_ready(timeout=START_LIMIT_S)
        except BaseException:
            await self.stop()
            raise

    async def run(self, code, silent=False):
        request = self.client.execute(code, silent=silent, store_history=not silent, allow_stdin=False, stop_on_error=False)
        while True:
            try:
                message = await self.client.get_iopub_msg(timeout=1)
            except queue.Empty:
                if self.stopped or not await self.manager.is_alive():
                    raise KernelDied() from None
                continue
            except Exception as error:  # noqa: BLE001: a socket that was closed under it
                raise KernelDied() from error
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                break
            if kind == "execute_input":
                yield "count", content.get("execution_count", 0)
            elif kind == "stream":
                yield "stream", (content["name"], content["text"])
            elif kind in ("execute_result", "display_data"):
                yield "result", (content["data"], kind == "execute_result")
            elif kind == "error":
                yield "error", (content["ename"], content["evalue"], "\n".join(content["traceback"]))
        await self._take_reply(request)

    async def _take_reply(self, request):
        """Replies would otherwise pile up in the socket."""
        for _ in range(100):
            try:
                reply = await self.client.get_shell_msg(timeout=5)
            except queue.Empty:
                return
            if reply["parent_header"].get("msg_id") == request:
                return

    async def interrupt(self):
        await self.manager.interrupt_kernel()

    async def stop(self):
        self.stopped = True
        if self.manager and self.manager.has_kernel:
            await self.manager.shutdown_kernel(now=True)
        if self.client:
            self.client.stop_channels()
        shutil.rmtree(self.folder, ignore_errors=True)


class NodeKernel:
    """JavaScript and TypeScript: javascript_kernel.js, with lines of JSON over two pipes."""

    def __init__(self, language):
        self.language = language
        self.process = self.events = None
        self.count = 0

    async def start(self, cwd, env):
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        try:
            self.process = await asyncio.create_subprocess_exec(
                "node", "/usr/lib/space-interpreter/javascript_kernel.js", self.language, str(theirs_in), str(theirs_out), cwd=cwd, env=env,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                pass_fds=(theirs_in, theirs_out), start_new_session=True)
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        self.requests = os.fdopen(ours_out, "wb", buffering=0)
        self.events = asyncio.Queue()
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=256 << 20)
        self.transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours_in, "rb", buffering=0))
        self.tasks = [asyncio.ensure_future(self._lines(reader))]
        self.tasks += [asyncio.ensure_future(self._output(name, getattr(self.process, name))) for name in ("stdout", "stderr")]
        ready = await asyncio.wait_for(self.events.get(), START_LIMIT_S)
        if ready.get("event") != "ready":
            await self.stop()
            raise KernelDied()

    async def _lines(self, reader):
        while line := await reader.readline():
            self.events.put_nowait(json.loads(line))
        self.events.put_nowait({"event": "gone"})

    async def _output(self, name, reader):
        """What child processes print."""
        while piece := await reader.read(65536):
            self.events.put_nowait({"event": "stream", "name": name, "text": piece.decode("utf-8", "replace")})

    async def run(self, code, silent=False):
        if not silent:
            self.count += 1
            yield "count", self.count
        identity = f"{time.monotonic_ns()}"
        line = json.dumps({"id": identity, "code": code, "silent": silent}).encode() + b"\n"
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._write, line)
        except OSError:
            raise KernelDied() from None
        while True:
            event = await self.events.get()
            kind = event["event"]
            if kind == "gone":
                raise KernelDied()
            if kind == "done" and event.get("id") == identity:
                break
            if kind != "done" and (told := self._told(event)):
                yield told
        # What children printed comes over other pipes, and may arrive after the end.
        await asyncio.sleep(DRAIN_S)
        while not self.events.empty():
            event = self.events.get_nowait()
            if event["event"] == "gone":
                self.events.put_nowait(event)
                break
            if told := self._told(event):
                yield told

    def _write(self, line):
        while line:
            line = line[self.requests.write(line):]

    @staticmethod
    def _told(event):
        kind = event["event"]
        if kind == "stream":
            return "stream", (event["name"], event["text"])
        if kind in ("result", "display"):
            return "result", (event["data"] if isinstance(event["data"], dict) else {"text/plain": str(event["data"])}, kind == "result")
        if kind == "error":
            return "error", (event["name"], event["value"], event["traceback"])
        return None

    async def interrupt(self):
        os.killpg(self.process.pid, signal.SIGINT)  # with whatever it waits for

    async def stop(self):
        for task in getattr(self, "tasks", []):
            task.cancel()
        if getattr(self, "transport", None):
            self.transport.close()
            self.requests.close()
        if self.process and self.process.returncode is None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            await self.process.wait()


def make(language):
    return NodeKernel(language) if language in ("javascript", "typescript") else JupyterKernel(language)
