#include "cli/machine_settings.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/file.h"
#include "cli/egress_policy.h"

namespace space::cli {
namespace {
namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

TEST(MachineSettings, AptSourcesInBothForms) {
  EXPECT_EQ(apt_urls("# deb http://off.test/debian x main\ndeb [signed-by=/k] http://one.test/debian bookworm main\ndeb-src "
                     "https://two.test/src bookworm main\n"),
            (Texts{"http://one.test/debian", "https://two.test/src"}));
  EXPECT_EQ(
      apt_urls(
          "Types: deb\nURIs: http://three.test/a https://four.test/b\nSuites: x\n\nTypes: deb\nURIs: http://five.test/\nEnabled: no\n"),
      (Texts{"http://three.test/a", "https://four.test/b"}));
  EXPECT_EQ(apt_urls("deb cdrom:[Debian]/ x\ndeb file:/srv/mirror x\n"), Texts());
}

TEST(MachineSettings, ValuesOfNamedSettingsAlone) {
  EXPECT_EQ(urls_of_settings("[global]\nindex-url = https://me:pass@pip.test/simple\ntrusted-host = https://no.test\nextra-index-url =\n   "
                             " https://more.test/simple\n    http://third.test/\nproxy = http://proxy.test\n",
                             {"index-url", "extra-index-url"}),
            (Texts{"https://me:pass@pip.test/simple", "https://more.test/simple", "http://third.test/"}));
  EXPECT_EQ(
      urls_of_settings("registry=https://npm.test/\n@scope:registry=https://scope.test/x/\n//npm.test/:_authToken=https://secret.test\n",
                       {"registry"}),
      (Texts{"https://npm.test/", "https://scope.test/x/"}));
  EXPECT_EQ(urls_of_settings("GOPROXY=https://go.test,direct\nGOFLAGS=-x\n", {"GOPROXY"}), (Texts{"https://go.test"}));
}

TEST(MachineSettings, AMachinesFilesBecomeRulesThatOnlyRead) {
  const auto root = *TempDir::make(fs::temp_directory_path(), "space-machine-");
  const auto write = [&](const std::string& path, const std::string& text) {
    fs::create_directories((root.path() / path).parent_path());
    std::ofstream(root.path() / path) << text;
  };
  write("etc/apt/sources.list.d/a.sources", "URIs: http://apt.test/debian\n");
  write("etc/apt/sources.list.d/ignored.bak", "deb http://old.test/debian x main\n");
  write("home/u/.config/pip/pip.conf", "[global]\nindex-url = https://me:secret@pip.test:8443/simple\n");
  write("home/u/.npmrc", "registry=https://npm.test/\nregistry=https://npm.test/\n");
  const json::object policy = sources_policy(machine_sources(root.path(), "/home/u", false));
  EXPECT_EQ(json::serialize(policy),
            R"({"mode":"allowlist","rules":[{"id":"apt-1","name":"apt.test","protocol":"http","ports":[80],"methods":["GET","HEAD"]},)"
            R"({"id":"pip-1","name":"pip.test","protocol":"https","ports":[8443],"methods":["GET","HEAD"]},)"
            R"({"id":"npm-1","name":"npm.test","protocol":"https","ports":[443],"methods":["GET","HEAD"]}]})");
}

TEST(EgressPolicy, WordsBecomeSettings) {
  EXPECT_EQ(json::serialize(*egress_settings({"open"})), R"({"policy":{"mode":"open"}})");
  EXPECT_EQ(egress_settings({"nothing-of-that-name"}).error().code, "preset_not_found");
  EXPECT_EQ(egress_settings({}).error().code, "no_policy");
  const auto folder = *TempDir::make(fs::temp_directory_path(), "space-policy-");
  const std::string one = folder.path() / "one.json", two = folder.path() / "two.json", bad = folder.path() / "bad.json";
  std::ofstream(one) << R"({"mode":"allowlist","rules":[{"id":"a","name":"a.test"}]})";
  std::ofstream(two)
      << R"({"policy":{"mode":"allowlist","rules":[{"id":"a","name":"b.test"},{"id":"a","name":"a.test"}]},"limits":{"connections":5}})";
  std::ofstream(bad) << "{";
  EXPECT_EQ(json::serialize(*egress_settings({one})), R"({"policy":{"mode":"allowlist","rules":[{"id":"a","name":"a.test"}]}})");
  EXPECT_EQ(
      json::serialize(*egress_settings({one, two})),
      R"({"limits":{"connections":5},"policy":{"mode":"allowlist","rules":[{"id":"a","name":"a.test"},{"id":"a-2","name":"b.test"}]}})");
  EXPECT_EQ(egress_settings({one, "open"}).error().code, "no_policy");
  EXPECT_EQ(egress_settings({bad}).error().code, "invalid_policy");
}

TEST(EgressPolicy, EveryPresetThatComesAlongIsReadable) {
  const auto folder = find_presets();
  ASSERT_TRUE(folder) << describe(folder.error());
  const auto presets = list_presets(*folder);
  ASSERT_TRUE(presets) << describe(presets.error());
  EXPECT_GE(presets->size(), 3U);
  for (const Preset& preset : *presets) EXPECT_EQ(preset.policy.at("mode"), "allowlist") << preset.name;
}

}  // namespace
}  // namespace space::cli
