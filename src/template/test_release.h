// A small but whole release in a store of its own, for tests: every file is there, and the digests are those of the files.
#pragma once

#include <gtest/gtest.h>

#include <fstream>

#include "base/digest.h"
#include "base/file.h"
#include "template/image.h"
#include "template/layout.h"
#include "template/publish.h"
#include "template/signature.h"

namespace space::tmpl {

struct WholeRelease : ::testing::Test {
  WholeRelease() {
    put("kernels/6.1-1/vmlinux", "kernel");
    put("kernels/6.1-1/modules/order", "a.ko\n");
    put("kernels/6.1-1/modules/a.ko", "module");
    put("kernels/6.1-1/kernel.json", R"({"format": 1, "package": "linux-image-6.1", "version": "6.1-1", "package_sha256": ")" +
                                         std::string(64, 'c') + "\", \"vmlinux_digest\": \"\"}");
    put("initramfs/6.1-1/abc.cpio", "initramfs");
    std::filesystem::create_symlink("abc.cpio", store.root() / "initramfs/6.1-1/current");
    release = published("base", "latest", "image");
  }
  void put(const std::string& path, const std::string& content) {
    std::filesystem::create_directories((store.root() / path).parent_path());
    std::ofstream(store.root() / path) << content;
  }
  Release published(const std::string& name, const std::string& tag, const std::string& image) {
    const auto folder = "staging-" + name + tag, manifest = "/etc f 0644 0:0 " + image + "\n";
    put(folder + "/rootfs.ext4", image);
    put(folder + "/manifest", manifest);
    put(folder + "/lock",
        "space-lock 1\npackage bash 5.2+1 amd64 " + std::string(64, 'a') + "\npackage dash 1:0.5 all " + std::string(64, 'b') + "\n");
    NewRelease next;
    next.name = name;
    next.tag = tag;
    next.staged = store.root() / folder;
    next.tree_digest = digest_name(sha256(manifest));
    next.image_digest = digest_of_image(next.staged / "rootfs.ext4").value();
    next.kernel_version = "6.1-1";
    return publish(store, next).value();
  }
  SigningKey new_key(const std::string& name) { return SigningKey::create(dir.path() / name).value(); }
  std::filesystem::path signature() const { return signature_file(store, release); }
  std::string text_of(const std::filesystem::path& file) { return read_file(file, 1 << 20).value(); }
  // The file with one bit turned; it may be read-only.
  void flip(const std::filesystem::path& file, std::size_t at) {
    auto text = text_of(file);
    text.at(at) = static_cast<char>(text.at(at) ^ 1);
    std::filesystem::remove(file);
    std::ofstream(file) << text;
  }

  TempDir dir = TempDir::make("/tmp", "space-supply-test").value();
  TemplateStore store{dir.path() / "templates"};
  Release release;
};

}  // namespace space::tmpl
