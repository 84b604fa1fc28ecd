#include "template/build.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/digest.h"
#include "base/file.h"
#include "template/command.h"
#include "template/kernel.h"
#include "template/signature.h"
#include "template/test_archives.h"

namespace space::tmpl {
namespace {
namespace fs = std::filesystem;

std::string program() {
  std::string out = {0x7f, 'E', 'L', 'F', 2, 1, 1};
  out.resize(64, '\0');
  out[18] = 62;  // amd64
  out[54] = 56;  // size of a program header, of which there are none
  return out + std::string(100, 's');
}

// Builds from what the scripts would have prepared.
class BuildTest : public ::testing::Test {
 protected:
  BuildTest() : dir_(*TempDir::make(fs::temp_directory_path(), "space-build-")) {
    const auto root = dir_.path();
    fs::create_directories(root / "recipes/tiny");
    fs::create_directories(root / "prepared");
    write("recipes/tiny/template.toml", "[size]\ndisk_mib = 256\n[env]\nA = \"b\"\n");
    write("prepared/lock", "space-lock 1\npackage bash 5.2 amd64 " + std::string(64, 'a') + "\n");
    put_kernel("6.1-1", "first");
    put_file("hello");
    write("agent", program());
    config_.templates_dir = root / "store";
    config_.recipes_dir = root / "recipes";
    config_.agent = root / "agent";
    config_.cache_dir = root / "cache";
    config_.reference = "tiny";
    config_.prepared = root / "prepared";
  }
  void write(const std::string& path, const std::string& content) { std::ofstream(dir_.path() / path) << content; }
  void put_file(const std::string& content) {
    write("prepared/rootfs.tar", make_tar({{.path = "./", .type = S_IFDIR, .mode = 0755}, {.path = "./file", .content = content}}));
  }
  void put_kernel(const std::string& version, const std::string& content) {
    const auto deb = test_kernel_package(
        "\x7f"
        "ELF" +
            content,
        guest_modules());
    write("prepared/kernel.deb", deb);
    write("prepared/kernel", "linux-image-test " + version + " " + digest_name(sha256(deb)).substr(7) + "\n");
  }
  Result<Release> run() {
    return build(config_, [this](const std::string& line) { said_ += line + "\n"; });
  }
  std::vector<std::string> left_over() {
    std::vector<std::string> out;
    const auto names = *list_directory(config_.templates_dir);
    for (const auto& name : names)
      if (name.starts_with("staging")) out.push_back(name);
    return out;
  }

  TempDir dir_;
  BuildConfig config_;
  std::string said_;
};

TEST_F(BuildTest, AReleaseHasEverythingThatAVmNeeds) {
  const auto made = run();
  ASSERT_TRUE(made) << describe(made.error());
  EXPECT_EQ(made->name, "tiny");
  EXPECT_EQ(made->tag, "latest");
  EXPECT_EQ(made->disk_mib, 256U);
  EXPECT_EQ(made->env.at("A"), "b");
  EXPECT_EQ(fs::file_size(made->rootfs), 256U << 20);
  EXPECT_LT(made->rootfs_bytes, 64U << 20);
  EXPECT_EQ(*read_file(made->kernel, 100),
            "\x7f"
            "ELFfirst");
  EXPECT_TRUE(read_file(made->initramfs, 1 << 20)->starts_with("070701"));
  EXPECT_EQ(fs::status(made->rootfs).permissions(), fs::perms::owner_read | fs::perms::group_read | fs::perms::others_read);
  std::string settings;
  EXPECT_TRUE(run_command(
      {{"debugfs", "-R", "cat /etc/space/template.json", made->rootfs.string()}, {}, [&](const std::string& line) { settings += line; }}));
  EXPECT_NE(settings.find(R"({"user":"user","workdir":"","env":{"A":"b"}})"), std::string::npos) << settings;
  EXPECT_TRUE(left_over().empty());
  EXPECT_NE(said_.find("writing the disk image"), std::string::npos);
}

TEST_F(BuildTest, TheSameInputGivesTheSameDigestElsewhere) {
  const auto one = run();
  config_.templates_dir = dir_.path() / "other";
  const auto two = run();
  ASSERT_TRUE(one && two);
  EXPECT_EQ(one->digest, two->digest);
  EXPECT_EQ(one->image_digest, two->image_digest);
}

TEST_F(BuildTest, AnotherContentNeedsAnotherTag) {
  const auto first = run();
  ASSERT_TRUE(first);
  put_file("changed");
  EXPECT_EQ(run().error().code, "template_tag_exists");
  EXPECT_TRUE(left_over().empty());
  config_.reference = "tiny:2";
  const auto second = run();
  ASSERT_TRUE(second);
  EXPECT_NE(second->digest, first->digest);
  EXPECT_EQ(TemplateStore(config_.templates_dir).resolve("tiny")->digest, first->digest);
}

TEST_F(BuildTest, IfAbsentLeavesAReleaseAloneAndBringsTheAgentUpToDate) {
  const auto first = run();
  ASSERT_TRUE(first);
  config_.if_absent = true;
  fs::remove(dir_.path() / "prepared/rootfs.tar");
  const auto same = run();
  ASSERT_TRUE(same) << describe(same.error());
  EXPECT_EQ(same->initramfs, first->initramfs);
  // The part of this agent that is loaded is its header alone: change that.
  auto other = program();
  other[7] = 3;
  write("agent", other);
  const auto next = run();
  ASSERT_TRUE(next);
  EXPECT_EQ(next->digest, first->digest);
  EXPECT_NE(next->initramfs, first->initramfs);
  EXPECT_TRUE(fs::exists(first->initramfs));  // a reader may be about to open it
}

TEST_F(BuildTest, IfAbsentAddsModulesThatAnEarlierVersionDidNotKeep) {
  const auto first = run();
  ASSERT_TRUE(first);
  const fs::path modules = first->kernel.parent_path() / "modules";
  const auto all = read_file(modules / "order", 1000).value();
  const auto age = [&] {
    fs::remove(modules / "fuse.ko");
    fs::remove(modules / "order");
    std::ofstream(modules / "order") << all.substr(0, all.find("fuse.ko"));
    ASSERT_TRUE(refresh_initramfs(config_.templates_dir, config_.agent));
  };
  age();
  config_.if_absent = true;
  const auto now = run();
  ASSERT_TRUE(now) << describe(now.error());
  EXPECT_EQ(read_file(modules / "order", 1000), all);
  EXPECT_EQ(now->initramfs, first->initramfs);
  EXPECT_TRUE(left_over().empty());
  // What is signed names its modules.
  age();
  ASSERT_TRUE(sign_release(TemplateStore(config_.templates_dir), *now, SigningKey::create(dir_.path() / "key").value()));
  ASSERT_TRUE(run());
  EXPECT_FALSE(fs::exists(modules / "fuse.ko"));
  EXPECT_NE(said_.find("signed"), std::string::npos) << said_;
}

TEST_F(BuildTest, AReleaseKeepsItsKernel) {
  const auto first = run();
  ASSERT_TRUE(first);
  put_kernel("6.1-2", "second");
  config_.reference = "tiny:2";
  const auto second = run();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->digest, first->digest);
  EXPECT_NE(second->kernel, first->kernel);
  EXPECT_EQ(TemplateStore(config_.templates_dir).resolve("tiny")->kernel, first->kernel);
  put_kernel("6.1-2", "another content under the same version");
  write("prepared/kernel", "linux-image-test 6.1-3 " + std::string(64, 'a') + "\n");
  config_.reference = "tiny:3";
  EXPECT_EQ(run().error().code, "template_kernel");
}

TEST_F(BuildTest, AnInitramfsThatIsNotWhatItsNameSaysIsMadeAgain) {
  const auto made = run();
  ASSERT_TRUE(made) << describe(made.error());
  const auto whole = read_file(made->initramfs, 1 << 20).value();
  fs::remove(made->initramfs);
  std::ofstream(made->initramfs) << "another";
  ASSERT_TRUE(refresh_initramfs(config_.templates_dir, config_.agent));
  EXPECT_EQ(read_file(made->initramfs, 1 << 20), whole);
}

TEST_F(BuildTest, WhatWasBuiltIsSigned) {
  const auto made = run();
  ASSERT_TRUE(made) << describe(made.error());
  const TemplateStore store(config_.templates_dir);
  const auto signed_now = sign_release(store, *made, SigningKey::create(dir_.path() / "key").value());
  ASSERT_TRUE(signed_now) << describe(signed_now.error());
  EXPECT_TRUE(check_statement(read_signature(store, *made)->value(), *made));
}

TEST_F(BuildTest, WhatADeadBuildLeftIsRemovedAndWhatALivingOneHoldsIsNot) {
  fs::create_directories(config_.templates_dir / "staging-dead/release");
  ASSERT_TRUE(run());
  EXPECT_TRUE(left_over().empty());
}

TEST_F(BuildTest, APreparedFolderFromAnotherLockIsRefused) {
  write("wanted", "space-lock 1\npackage bash 5.3 amd64 " + std::string(64, 'b') + "\n");
  config_.lock = dir_.path() / "wanted";
  EXPECT_EQ(run().error().code, "template_lock");
  write("wanted", *read_file(dir_.path() / "prepared/lock", 1000));
  EXPECT_TRUE(run());
}

TEST_F(BuildTest, ScriptsRunWhenNothingIsPrepared) {
  config_.prepared.clear();
  const auto copy = "#!/bin/sh\necho '==> copying' >&2\nwhile [ $# -gt 0 ]; do [ \"$1\" = --out ] && out=$2; shift; done\ncp " +
                    (dir_.path() / "prepared").string() + "/";
  write("recipes/rootfs", copy + "rootfs.tar $out/ && cp " + (dir_.path() / "prepared/lock").string() + " $out/\n");
  write("recipes/kernel", copy + "kernel* $out/\n");
  for (const char* name : {"rootfs", "kernel"}) fs::permissions(dir_.path() / "recipes" / name, fs::perms::all);
  const auto made = run();
  ASSERT_TRUE(made) << describe(made.error());
  EXPECT_NE(said_.find("copying"), std::string::npos);
  EXPECT_TRUE(left_over().empty());

  write("recipes/rootfs", "#!/bin/sh\necho 'error: no network' >&2\nexit 1\n");
  config_.reference = "tiny:2";
  const auto failed = run();
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, "template_script");
  EXPECT_NE(failed.error().message.find("no network"), std::string::npos);
  EXPECT_TRUE(left_over().empty());
}

TEST_F(BuildTest, MistakesOfTheCaller) {
  config_.reference = "unknown";
  EXPECT_EQ(run().error().code, "template_recipe");
  config_.reference = "sha256:" + std::string(64, 'a');
  EXPECT_EQ(run().error().code, "template_reference");
  config_.reference = "tiny";
  config_.agent = dir_.path() / "nowhere";
  EXPECT_EQ(run().error().code, "agent_missing");
  EXPECT_TRUE(left_over().empty());
  EXPECT_EQ(TemplateStore(config_.templates_dir).resolve("tiny").error().code, "template_not_found");
}

}  // namespace
}  // namespace space::tmpl
