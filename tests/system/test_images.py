"""Container images as templates: docker archives and OCI layouts made by hand, and what an image may not do."""

import json
import unittest

import images
from test_templates import TemplateTest

BUDGET_S = 360
SLOW = True
BESIDE = True


class Images(TemplateTest):
    def image(self, tag, data, status=0):
        path = self.folder / "image.tar"
        path.write_bytes(data)
        return self.build(tag, "--image", str(path), status=status)

    def test_a_docker_archive_becomes_a_template(self):
        layers = [
            images.base_layer(),
            images.layer({"opt/one": b"1\n", "opt/two": b"2\n", "old/file": b"old\n", "bin/through-a-link": b"#!/bin/sh\necho through\n"}, folders=["opt", "old"]),
            images.layer({"opt/.wh.one": b"", "old/.wh..wh..opq": b"", "old/new": b"new\n", "etc/mine": b"mine\n"}, links={"opt/link": "two"}, hard={"opt/hard": "opt/two"}),
        ]
        # A name that leads out by a link stays inside: the link is the image's own, and is followed there.
        layers.append(images.layer({"escape/etc/inside": b"inside\n"}, links={"escape": "/"}))
        printed = self.image("tt-image:1", images.docker_archive(layers))
        self.assertIn("unpacking 4 layers", printed)
        with self.api.create(template="tt-image:1") as sandbox:
            out = sandbox.output("ls /opt /old; cat /opt/link /opt/hard /old/new /etc/mine /etc/inside; through-a-link; id -un; echo $HOME; ls -d /home/user; ls /usr/bin/python3 2>&1 | cut -c1-2")
            self.assertEqual(out.split(), ["/old:", "new", "/opt:", "hard", "link", "two", "2", "2", "new", "mine", "inside", "through", "user", "/home/user", "/home/user", "ls"])
            self.assertEqual(sandbox.output("ls -d /.space* 2>/dev/null | cat"), "")
            sandbox.write("/home/user/f", b"x")
            self.assertEqual(sandbox.read("/home/user/f"), b"x")
        # A Dockerfile on top of it, and the image's layer is kept.
        self.put("Dockerfile", "FROM tt-image:1\nRUN echo above > /above\n")
        (self.folder / "image.tar").unlink()
        self.build("tt-image:2", str(self.folder))
        with self.api.create(template="tt-image:2") as sandbox:
            self.assertEqual(sandbox.output("cat /above /etc/mine").split(), ["above", "mine"])
        self.nothing_is_left()

    def test_an_oci_layout_too(self):
        folder = self.folder / "layout"
        for name, content in images.oci_layout([images.base_layer(compressed=True), images.layer({"etc/oci": b"oci\n"})]).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        self.build("tt-oci:1", "--image", str(folder))
        with self.api.create(template="tt-oci:1") as sandbox:
            self.assertEqual(sandbox.output("cat /etc/oci").strip(), "oci")

    def test_what_an_image_may_not_do(self):
        base = images.layer({"bin/sh": b"x"})
        wrong = images.oci_layout([base])
        name = next(n for n in wrong if n.startswith("blobs/") and wrong[n] == base)
        cases = {
            "leads out": images.docker_archive([images.layer({"../evil": b"x"})]),
            "neither a docker archive": images.archive({"x": b"y"}),
            "no shell": images.docker_archive([images.layer({"etc/x": b"x"})]),
            "not what its digest says": images.archive({**wrong, name: base + b"\0" * 512}),
            "several images": images.archive({"manifest.json": json.dumps([{}, {}]).encode()}),
            "lacks": images.archive({"manifest.json": json.dumps([{"Config": "c", "Layers": ["gone"]}]).encode()}),
        }
        for words, data in cases.items():
            with self.subTest(words):
                self.assertIn(words, self.image("tt-bad:1", data, status=65))
        self.nothing_is_left()


del TemplateTest

if __name__ == "__main__":
    unittest.main()
