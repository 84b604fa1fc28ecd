"""Template builds by the unmodified Python SDK. Started by `tests/e2b/run python-templates`."""

import inspect
import os
import pathlib
import re
import tempfile

from e2b import BuildException, Sandbox, Template, wait_for_file, wait_for_process
from e2b.template.main import TemplateBuilder

from checks import check, named, raises, refused, same, tell, until

context = pathlib.Path(tempfile.mkdtemp(prefix="space-e2b-"))
(context / "folder").mkdir()
(context / "file.txt").write_text("a file\n")
(context / "folder" / "one.txt").write_text("one\n")
name = f"tt-py-{os.getpid()}"
lines = []


def build(template, alias):
    return Template.build(template, alias, on_build_logs=lambda entry: lines.append(entry.message))


@check(*(f"Template.{one}" for one in ("build", "from_template", "set_envs", "set_workdir", "copy", "run_cmd", "set_start_cmd")))
def _():
    template = (Template(file_context_path=str(context)).from_template("base").set_envs({"GREETING": "hello"}).set_workdir("/app").copy("file.txt", "file.txt")
                .copy("folder", "folder").run_cmd("echo $GREETING > made").set_start_cmd("sleep 98765", wait_for_process("sleep")))
    info = build(template, name)
    assert re.fullmatch(r"[0-9a-f-]{36}", info.build_id), info
    sandbox = Sandbox.create(name)
    out = sandbox.commands.run("pwd; cat file.txt folder/one.txt made; pgrep -fc '^sleep 98765'").stdout
    same(out.split("\n"), ["/app", "a file", "one", "hello", "1", ""])
    sandbox.kill()


# What the methods below install, made in the guest, so that no network is needed.
(context / "packages.sh").write_text(r"""set -e
python3 - <<END
import zipfile
with zipfile.ZipFile("mini-1-py3-none-any.whl", "w") as wheel:
    for name, text in {"mini.py": "said = 'by pip'", "mini-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: mini\nVersion: 1\n",
                       "mini-1.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n", "mini-1.dist-info/RECORD": ""}.items():
        wheel.writestr(name, text)
END
mkdir -p deb/DEBIAN mini
printf 'Package: mini\nVersion: 1\nArchitecture: all\nMaintainer: A <a@example.org>\nDescription: nothing\n' >deb/DEBIAN/control
dpkg-deb --build deb mini.deb
echo '{"name":"mini","version":"1.0.0","main":"mini.js"}' >mini/package.json
echo 'module.exports = "by npm"' >mini/mini.js
rm -f /etc/apt/sources.list
git -c init.defaultBranch=main init -q origin
git -C origin -c user.name=A -c user.email=a@example.org commit -q --allow-empty -m first
chown -R user: origin
printf '#!/bin/sh\necho "$*" >/app/bun-said\n' >/usr/local/bin/bun
chmod +x /usr/local/bin/bun
""")
second = (Template(file_context_path=str(context)).from_template(name).make_dir(["made-here", "made-too"])
          .copy_items([{"src": "file.txt", "dest": "made-here/"}, {"src": "packages.sh", "dest": "packages.sh"}])
          .rename("made-here/file.txt", "made-too/renamed.txt").remove("made-here", recursive=True).make_symlink("made-too", "linked")
          .run_cmd("bash packages.sh", user="root").git_clone("/app/origin", "cloned").pip_install("/app/mini-1-py3-none-any.whl").npm_install("/app/mini", g=True)
          .bun_install("from-bun").apt_install("/app/mini.deb").skip_cache().set_user("other").set_ready_cmd(wait_for_file("/app/linked/renamed.txt")))


@check("Template.bun_install", verdict="differs", note="the template `base` has no Bun: install it by a step before")
def _():
    build(second, name + "-second")


@check(*(f"Template.{one}" for one in ("make_dir", "copy_items", "rename", "remove", "make_symlink", "git_clone", "pip_install", "npm_install", "apt_install", "skip_cache", "set_user",
                                       "set_ready_cmd")))
def _():
    sandbox = Sandbox.create(name + "-second")
    out = sandbox.commands.run("""ls -d made*; cat linked/renamed.txt; sudo -u user git -C cloned log --format=%s; python3 -c "import mini; print(mini.said)"
node -p "require('/usr/local/lib/node_modules/mini')"; cat bun-said; dpkg-query -W mini""", user="root").stdout
    same(out.split("\n"), ["made", "made-too", "a file", "first", "by pip", "by npm", "install from-bun", "mini\t1", ""])
    same(sandbox.commands.run("id -un").stdout, "other\n")
    sandbox.kill()


@check("Template.build that fails")
def _():
    raises(BuildException, lambda: build(Template().from_template("base").run_cmd("exit 7"), name + "-fails"), "failed to run command 'exit 7': exit status 7")


IMPORTED = "names an image that was imported by `space template build -t NAME:TAG --image …`"
for method in ("from_image", "from_debian_image", "from_ubuntu_image", "from_fedora_image", "from_alpine_image", "from_arch_image", "from_python_image", "from_node_image",
               "from_bun_image"):
    @check(f"Template.{method}", verdict="differs", note=IMPORTED)
    def _():
        template = getattr(Template(), method)(*(["nowhere/such:1"] if method == "from_image" else [])).run_cmd("true")
        raises(BuildException, lambda: build(template, name + "-image"), "--image")


@check("Template.build_in_background", "Template.get_build_status", "Template.from_base_image")
def _():
    started = Template.build_in_background(Template().from_base_image().run_cmd("exit 1"), name + "-fails")
    until(lambda: Template.get_build_status(started).status.value == "error", 60)


@check("Template.from_dockerfile", "Template.to_json")
def _():
    assert '"fromImage": "base"' in Template.to_json(Template().from_dockerfile("FROM base\nRUN true\n"))


@check("Template.to_dockerfile")
def _():
    assert "FROM e2bdev/base" in Template.to_dockerfile(Template().from_base_image().run_cmd("true"))


refused("Template.from_aws_registry", "credentials of a registry", lambda: build(Template().from_aws_registry("x.example.org/i", "a", "b", "c").run_cmd("true"), name + "-image"))
refused("Template.from_gcp_registry", "credentials of a registry", lambda: build(Template().from_gcp_registry("x.example.org/i", {"a": 1}).run_cmd("true"), name + "-image"))
refused("Template.add_mcp_server", "mcp-gateway", lambda: Template().from_template("base").add_mcp_server("exa"))
refused("Template.beta_dev_container_prebuild", "devcontainer", lambda: Template().from_template("base").beta_dev_container_prebuild("/x"))
refused("Template.beta_set_dev_container_start", "devcontainer", lambda: Template().from_template("base").beta_set_dev_container_start("/x"))


@check("Template.exists", "Template.alias_exists")
def _():
    same((Template.alias_exists(name), Template.alias_exists(name + "-none")), (True, False))
    same((Template.exists(name), Template.exists(name + "-none")), (True, False))


@check("Template.assign_tags")
def _():
    same(Template.assign_tags(name, ["stable"]).tags, ["stable"])
    Sandbox.create(name + ":stable").kill()


@check("Template.get_tags")
def _():
    same(sorted(tag.tag for tag in Template.get_tags(name)), ["default", "stable"])


@check("Template.remove_tags")
def _():
    Template.remove_tags(name, ["stable"])
    same([tag.tag for tag in Template.get_tags(name)], ["default"])


for kind in (Template, TemplateBuilder):
    for method, value in inspect.getmembers(kind):
        if not method.startswith("_") and callable(value) and f"Template.{method}" not in named:
            tell(f"Template.{method}", "not checked")
