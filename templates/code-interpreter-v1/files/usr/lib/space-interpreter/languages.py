"""Languages of contexts: their names, and how a cell's environment is set in each."""
import json
import shlex

ALIASES = {"js": "javascript", "ts": "typescript", "py": "python", "python3": "python", "sh": "bash", "shell": "bash"}
KNOWN = ("python", "javascript", "typescript", "bash")
NAME = r"[A-Za-z_][A-Za-z0-9_]*"  # of a variable; others stay unset where a language could not say them


def normal(name):
    """The language of that name; None when this interpreter has no kernel for it."""
    name = (name or "python").strip().lower()
    name = ALIASES.get(name, name)
    return name if name in KNOWN else None


def environment_code(language, put, remove):
    """A statement that sets and unsets environment variables of a running kernel, without a trace among the user's names."""
    if language == "python":
        parts = [f"__import__('os').environ.update({put!r})"] if put else []
        parts += [f"__import__('os').environ.pop({name!r}, None)" for name in remove]
        return "\n".join(parts)
    if language in ("javascript", "typescript"):
        return f"Object.assign(process.env, {json.dumps(put)}); for (const name of {json.dumps(list(remove))}) delete process.env[name]"
    parts = [f"export {name}={shlex.quote(value)}" for name, value in put.items()] + [f"unset {name}" for name in remove]
    return "\n".join(parts)
