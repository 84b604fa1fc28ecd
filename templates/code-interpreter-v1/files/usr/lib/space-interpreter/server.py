"""The code interpreter's HTTP service on port 49999 (E2B's protocol): contexts, and cells whose output is streamed as lines of JSON.
Everybody who reaches the port may run code: the way to it is guarded outside the sandbox."""
import asyncio
import datetime
import json
import math
import re
import sys

import tornado.web
from tornado.iostream import StreamClosedError

from contexts import Contexts, Refused
from languages import KNOWN, NAME, normal

PORT = 49999
MOST_BODY = 64 << 20
KEEPALIVE_S = 5
KINDS = {"text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg", "image/png": "png", "image/jpeg": "jpeg",
         "application/pdf": "pdf", "text/latex": "latex", "application/json": "json", "application/javascript": "javascript", "e2b/data": "data",
         "e2b/chart": "chart"}


def finite(value):
    """JSON has no NaN."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    return [finite(one) for one in value] if isinstance(value, list) else value


def line(event):
    try:
        return json.dumps(event, allow_nan=False) + "\n"
    except ValueError:
        return json.dumps(finite(event)) + "\n"


def result(data, is_main):
    out, extra = {"type": "result", "is_main_result": is_main}, {}
    for kind, value in data.items():
        if value is None:
            continue
        if kind not in KINDS:
            extra[kind] = value
        elif isinstance(value, list) and KINDS[kind] not in ("json", "data", "chart"):
            out[KINDS[kind]] = "".join(map(str, value))
        else:
            out[KINDS[kind]] = value
    text = out.get("text")
    if text and len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        out["text"] = text[1:-1]
    return {**out, "extra": extra} if extra else out


def told(kind, what):
    if kind == "count":
        return {"type": "number_of_executions", "execution_count": what}
    if kind == "stream":
        now = datetime.datetime.now(datetime.timezone.utc).isoformat()
        return {"type": "stderr" if what[0] == "stderr" else "stdout", "text": what[1], "timestamp": now}
    if kind == "result":
        return result(*what)
    if kind == "error":
        return {"type": "error", "name": what[0], "value": what[1], "traceback": what[2]}
    return {"type": "end_of_execution"}


def text_of(body, name, most=4096):
    value = body.get(name)
    if value is not None and (not isinstance(value, str) or len(value) > most or "\0" in value):
        raise Refused(400, f"{name} must be a text of at most {most} characters")
    return value


def language_of(body):
    given = text_of(body, "language", 64)
    language = normal(given)
    if language is None:
        raise Refused(500, f"this template has no kernel for '{given}': it has {', '.join(KNOWN)}")
    return language


class Handler(tornado.web.RequestHandler):
    def initialize(self, contexts):
        self.contexts = contexts

    def body(self):
        try:
            value = json.loads(self.request.body or b"{}")
        except (ValueError, RecursionError):
            raise Refused(400, "the body must be a JSON object") from None
        if not isinstance(value, dict):
            raise Refused(400, "the body must be a JSON object")
        return value

    def say(self, value):
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(value))

    def log_exception(self, kind, value, trace):
        if not isinstance(value, Refused):
            super().log_exception(kind, value, trace)

    def write_error(self, status, exc_info=None, **_):
        error = exc_info[1] if exc_info else None
        if isinstance(error, Refused):
            self.set_status(error.status)
            sentence = str(error)
        else:
            sentence = "there is no such route" if status == 404 else self._reason
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(sentence)


class Health(Handler):
    def get(self):
        self.say("OK")


class ContextList(Handler):
    def get(self):
        self.say([context.shown() for context in self.contexts.all.values()])

    async def post(self):
        body = self.body()
        context = await self.contexts.create(language_of(body), text_of(body, "cwd"))
        self.say(context.shown())


class OneContext(Handler):
    async def delete(self, identity):
        await self.contexts.remove(identity)
        self.say(None)


class Restart(Handler):
    async def post(self, identity):
        await self.contexts.find(identity).restart()
        self.say(None)


class Execute(Handler):
    def initialize(self, contexts):
        super().initialize(contexts)
        self.gone = asyncio.Event()

    def on_connection_close(self):
        self.gone.set()

    async def context(self, body):
        identity = text_of(body, "context_id", 200)
        if identity and body.get("language"):
            raise Refused(400, "Only one of context_id or language can be provided")
        return self.contexts.find(identity) if identity else await self.contexts.default(language_of(body))

    def env(self, body):
        env = body.get("env_vars") or {}
        if not isinstance(env, dict) or not all(isinstance(v, str) and re.fullmatch(NAME, k) and "\0" not in v for k, v in env.items()):
            raise Refused(400, "env_vars must be texts by the names of variables")
        return env

    async def post(self):
        body = self.body()
        code = text_of(body, "code", MOST_BODY)
        if code is None:
            raise Refused(400, "code is missing")
        env = self.env(body)
        context = await self.context(body)
        events, over = asyncio.Queue(), asyncio.Event()

        def tell(kind, what):
            if kind == "end":
                over.set()
            if not self.gone.is_set():
                events.put_nowait((kind, what))

        running = asyncio.ensure_future(context.run(code, env, tell))
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-cache")
        try:
            await self.flush()
            await self.pass_on(events)
        except StreamClosedError:
            self.gone.set()
        if self.gone.is_set() and not over.is_set():
            # The client gave up: its cell must not keep others waiting.
            asyncio.ensure_future(context.interrupt(over))
            return
        await running

    async def pass_on(self, events):
        closed = asyncio.ensure_future(self.gone.wait())
        try:
            while True:
                waiting = asyncio.ensure_future(events.get())
                await asyncio.wait({waiting, closed}, timeout=KEEPALIVE_S, return_when=asyncio.FIRST_COMPLETED)
                if self.gone.is_set():
                    waiting.cancel()
                    return
                if not waiting.done():
                    waiting.cancel()
                    self.write(line({"type": "keepalive"}))
                    await self.flush()
                    continue
                kind, what = waiting.result()
                self.write(line(told(kind, what)))
                if kind == "end":
                    return
                await self.flush()
        finally:
            closed.cancel()


class Unknown(Handler):
    def prepare(self):
        raise tornado.web.HTTPError(404)


async def main():
    contexts = Contexts()
    shared = {"contexts": contexts}
    again = "--again" in sys.argv
    if not again:
        await contexts.warm_up()
    application = tornado.web.Application(
        [("/health", Health, shared), ("/execute", Execute, shared), ("/contexts", ContextList, shared), ("/contexts/([^/]+)", OneContext, shared),
         ("/contexts/([^/]+)/restart", Restart, shared)],
        default_handler_class=Unknown, default_handler_args=shared, log_function=lambda handler: None)
    application.listen(PORT, max_body_size=MOST_BODY, idle_connection_timeout=640)
    if again:  # somebody waits for an answer more than for warm libraries
        try:
            await contexts.start_defaults()
        except Refused as error:
            print(error, flush=True)  # whoever asks for one tries again
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
