"""Contexts: kernels with an id, a language and a folder, which run one cell after the other and keep their state."""
import asyncio
import os
import pwd
import uuid

import environment
import kernels
from languages import environment_code

MOST_CONTEXTS = 64
INTERRUPT_EVERY_S, INTERRUPTS = 2, 10


class Refused(Exception):
    """For the client: a sentence, and the HTTP status."""

    def __init__(self, status, sentence):
        super().__init__(sentence)
        self.status = status


class Context:
    def __init__(self, language, cwd, identity=None):
        self.id, self.language, self.cwd = identity or str(uuid.uuid4()), language, cwd
        self.lock = asyncio.Lock()  # one cell at a time
        self.kernel = None
        self.load, self.env = None, {}  # of the sandbox, as the kernel has it
        self.restarts = 0

    def shown(self):
        return {"id": self.id, "language": self.language, "cwd": self.cwd}

    async def start(self):
        if not os.path.isdir(self.cwd):
            raise Refused(500, f"the folder {self.cwd} of the context does not exist")
        if not os.access(self.cwd, os.X_OK):
            raise Refused(500, f"the folder {self.cwd} of the context cannot be entered by the user {pwd.getpwuid(os.getuid()).pw_name}")
        self.load, self.env = environment.current()
        kernel = kernels.make(self.language)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("JUPYTER_")}
        try:
            await kernel.start(self.cwd, {**inherited, **self.env, "PWD": self.cwd})
        except (OSError, RuntimeError, asyncio.TimeoutError, kernels.KernelDied) as error:
            raise Refused(500, f"the {self.language} kernel did not start: {error or type(error).__name__}") from None
        self.kernel = kernel

    async def restart(self):
        self.restarts += 1
        await self.stop()
        async with self.lock:
            await self.start()

    async def stop(self):
        if self.kernel:
            await self.kernel.stop()

    async def run(self, code, env, tell):
        """Runs a cell and tells its events, whether or not somebody listens. Never raises."""
        async with self.lock:
            restarts, failed = self.restarts, False
            try:
                await self._renew_environment()
                await self._change({**env}, [])
                async for kind, what in self.kernel.run(code):
                    if kind == "error":
                        if failed:
                            continue  # only the first one counts
                        failed = True
                    tell(kind, what)
                await self._change({name: self.env[name] for name in env if name in self.env}, [name for name in env if name not in self.env])
            except kernels.KernelDied:
                if restarts != self.restarts:
                    tell("error", ("ContextRestarting", "Context was restarted", ""))
                else:
                    tell("error", ("UnexpectedEndOfExecution", "The kernel ended before the execution was finished; its state is lost", ""))
                    await self._start_again()
            finally:
                tell("end", None)

    async def _start_again(self):
        await self.stop()
        try:
            await self.start()
        except Refused as error:
            print(f"context {self.id}: {error}", flush=True)

    async def _renew_environment(self):
        """After a load the sandbox may be another one, made of this one, with an environment of its own."""
        load, env = environment.current()
        if load == self.load:
            return
        await self._change(env, [name for name in self.env if name not in env])
        self.load, self.env = load, env

    async def _change(self, put, remove):
        if put or remove:
            async for _ in self.kernel.run(environment_code(self.language, put, remove), silent=True):
                pass

    async def interrupt(self, over):
        """Until the cell is over (an asyncio.Event); a kernel that cannot be interrupted is started again."""
        for _ in range(INTERRUPTS):
            if over.is_set():
                return
            await self.kernel.interrupt()
            try:
                await asyncio.wait_for(over.wait(), INTERRUPT_EVERY_S)
            except asyncio.TimeoutError:
                pass
        if not over.is_set():
            await self.restart()


class Contexts:
    def __init__(self):
        self.all = {}  # by id, in the order of their making
        self.defaults = {}  # by language: a task that gives the context
        self.home = os.path.expanduser("~")

    async def create(self, language, cwd):
        if len(self.all) >= MOST_CONTEXTS:
            raise Refused(500, f"there are {MOST_CONTEXTS} contexts already: remove one first")
        context = Context(language, cwd or self.home)
        await context.start()
        self.all[context.id] = context
        return context

    async def default(self, language):
        """Made at its first use; several at once wait for one."""
        if language not in self.defaults:
            self.defaults[language] = asyncio.ensure_future(self.create(language, None))
        try:
            return await asyncio.shield(self.defaults[language])
        except BaseException:
            task = self.defaults.get(language)
            if task and task.done() and (task.cancelled() or task.exception()):
                self.defaults.pop(language, None)
            raise

    def find(self, identity):
        if identity not in self.all:
            raise Refused(404, f"Context {identity} not found")
        return self.all[identity]

    async def remove(self, identity):
        context = self.find(identity)
        del self.all[identity]
        for language, task in list(self.defaults.items()):
            if task.done() and not task.exception() and task.result() is context:
                del self.defaults[language]
        await context.stop()

    async def start_defaults(self):
        """The contexts that a sandbox meets; gives Python's."""
        python = await self.default("python")
        await self.default("javascript")
        return python

    async def warm_up(self):
        """What a sandbox meets at once: the default contexts, and Python's large libraries loaded, with their font cache made."""
        python = await self.start_defaults()
        async with python.lock:
            async for kind, what in python.kernel.run(WARM_UP, silent=True):
                if kind == "error":
                    print(f"warm-up: {what}", flush=True)


WARM_UP = """
def __warm_up():
    import matplotlib.pyplot as plot, numpy, pandas
    from io import BytesIO
    figure, axes = plot.subplots()
    axes.plot([0, 1], [0, 1])
    figure.savefig(BytesIO(), format="png")
    plot.close(figure)
    pandas.DataFrame({"a": [1]})._repr_html_()
__warm_up()
del __warm_up
"""
