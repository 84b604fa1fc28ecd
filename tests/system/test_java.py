"""A real Java in a template: it trusts the authority of each sandbox's own gateway, though its trust store is no text file."""

import subprocess
import unittest
from pathlib import Path

from egress_case import EgressTest
from test_templates import remove_bases

BUDGET_S = 360
SLOW = True
BESIDE = True

JAVA = next(iter(sorted(Path("/usr/lib/jvm").glob("java-17-openjdk-*"))), None)
STORE = Path("/etc/ssl/certs/java/cacerts")  # Debian's, with the public authorities alone
LEFT_OUT = ("jmods", "src.zip", "man", "demo")
FETCH = r"""
public class Fetch {
  public static void main(String[] words) throws Exception {
    var connection = (java.net.HttpURLConnection) new java.net.URL(words[0]).openConnection();
    System.out.println(connection.getResponseCode());
  }
}
"""


@unittest.skipUnless(JAVA and (JAVA / "bin/javac").exists() and STORE.exists(), "openjdk-17-jdk-headless is not installed")
class Java(EgressTest):
    options = {"pool_ready": 0, "pool_spawned": 0}

    def fetch(self, sandbox):
        return sandbox.run(f"cd ~ && {JAVA}/bin/java -Xint -XX:TieredStopAtLevel=1 Fetch https://allowed.test/", timeout=120)

    def test_a_template_with_java_trusts_the_gateway_of_each_sandbox(self):
        self.addCleanup(remove_bases)
        self.addCleanup(self.server.delete_published)
        self.sandbox.write("/home/user/Fetch.java", FETCH.encode())
        packed = subprocess.run(["tar", "-cC", "/", *(f"--exclude={name}" for name in LEFT_OUT), str(JAVA)[1:], "etc/java-17-openjdk", str(STORE)[1:]], check=True, capture_output=True).stdout
        self.sandbox.write("/tmp/java.tar", packed)
        made = self.sandbox.run(f"sudo tar -xC / -f /tmp/java.tar && rm /tmp/java.tar && cd ~ && {JAVA}/bin/javac Fetch.java && cp {STORE} ~/public", timeout=240)
        self.assertEqual(made.code, 0, made)
        # The control: a store with the public authorities alone is not enough.
        before = self.fetch(self.sandbox)
        self.assertIn(b"PKIX path building failed", before.stderr)
        published = self.cli("template", "publish", self.sandbox.id, "tt-java:1", timeout=200)
        self.assertEqual(published.returncode, 0, published.stderr)
        with self.api.create(template="tt-java:1", egress=self.settings()) as first, self.api.create(template="tt-java:1", egress=self.settings()) as second:
            for sandbox in (first, second):
                fetched = self.fetch(sandbox)
                self.assertEqual(fetched.stdout, b"200\n", fetched)
                listed = sandbox.run(f"{JAVA}/bin/keytool -list -keystore {STORE} -storepass changeit", timeout=120)  # checks the store's digest
                self.assertEqual(listed.stdout.count(b"space-egress"), 1, listed)
            one, other = (sandbox.run(f"sha256sum < {STORE}").stdout for sandbox in (first, second))
            self.assertNotEqual(one, other, "each has an authority of its own")
            first.run(f"sudo cp ~/public {STORE}")
            self.assertIn(b"PKIX path building failed", self.fetch(first).stderr)
