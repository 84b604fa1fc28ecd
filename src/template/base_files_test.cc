#include "template/base_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"

namespace space::tmpl {
namespace {

class BaseFiles : public ::testing::Test {
 protected:
  BaseFiles() : dir_(TempDir::make("/tmp", "space-bases-").value()) {
    root_ = dir_.path() / "bases";
    release_.name = "base";
    release_.tag = "latest";
    release_.digest = "sha256:" + std::string(64, '1');
    release_.image_digest = "sha256:" + std::string(64, '2');
    release_.kernel = file("vmlinux", "kernel");
    release_.initramfs = file("initramfs", "initramfs");
    release_.rootfs = file("rootfs", "rootfs");
    size_.memory_mib = 64;
    key_ = base_key(release_, size_, "machine").value();
  }
  std::filesystem::path file(const char* name, std::string_view content) {
    const auto path = dir_.path() / name;
    EXPECT_TRUE(write_file_durable(path, content).has_value());
    return path;
  }
  // What make_base leaves, without a VM.
  void fill(const std::filesystem::path& folder) {
    BaseManifest manifest;
    manifest.key = key_;
    manifest.release_digest = release_.digest;
    manifest.state_key = "machine";
    manifest.size = size_;
    Fd memory = snapshot::new_guest_memory(64 << 20).value();
    const std::string page(4096, 'm');
    ASSERT_TRUE(pwrite_all(memory, std::as_bytes(std::span(page)), 8192).has_value());
    Fd image = open_file(folder / kMemoryFile, O_RDWR | O_CREAT).value();
    manifest.memory = snapshot::store_memory_image(memory, 64 << 20, image).value();
    for (auto [name, into] :
         {std::pair{kStateFile, &manifest.state}, {kOverlayFile, &manifest.overlay}, {kEmptyFile, &manifest.empty_overlay}}) {
      ASSERT_TRUE(write_file_durable(folder / name, name).has_value());
      *into = seal_file(folder / name).value();
    }
    ASSERT_TRUE(write_file_durable(folder / kManifestFile, write_manifest(manifest)).has_value());
  }
  void make() {
    auto claim = BaseClaim::take(root_, key_).value();
    ASSERT_TRUE(claim.has_value());
    fill(claim->folder());
    ASSERT_TRUE(claim->publish().has_value());
  }
  std::string open_code() {
    auto base = open_base(root_, key_, release_, size_);
    return base ? "" : base.error().code;
  }

  TempDir dir_;
  std::filesystem::path root_;
  Release release_;
  vmm::Size size_;
  std::string key_;
};

TEST_F(BaseFiles, TheKeyStandsForEverythingABaseDependsOn) {
  const auto other = [&](auto change) {
    Release release = release_;
    vmm::Size size = size_;
    std::string machine = "machine";
    change(release, size, machine);
    return base_key(release, size, machine).value() != key_;
  };
  EXPECT_FALSE(other([](Release&, vmm::Size&, std::string&) {}));
  EXPECT_TRUE(other([](Release& r, vmm::Size&, std::string&) { r.digest[10] = '9'; }));
  EXPECT_TRUE(other([](Release& r, vmm::Size&, std::string&) { r.image_digest[10] = '9'; }));
  EXPECT_TRUE(other([&](Release& r, vmm::Size&, std::string&) { r.kernel = file("vmlinux2", "another"); }));
  EXPECT_TRUE(other([&](Release& r, vmm::Size&, std::string&) { r.initramfs = file("initramfs2", "another"); }));
  EXPECT_TRUE(other([](Release&, vmm::Size& s, std::string&) { s.memory_mib = 65; }));
  EXPECT_TRUE(other([](Release&, vmm::Size& s, std::string&) { s.cpus = 2; }));
  EXPECT_TRUE(other([](Release&, vmm::Size& s, std::string&) { s.disk_mib = 65; }));
  EXPECT_TRUE(other([](Release&, vmm::Size&, std::string& m) { m = "other"; }));
  // Where files lie is of no account.
  EXPECT_FALSE(other([&](Release& r, vmm::Size&, std::string&) { r.kernel = file("vmlinux3", "kernel"); }));
}

TEST_F(BaseFiles, APublishedBaseOpens) {
  EXPECT_EQ(open_code(), "base_not_found");
  make();
  auto base = open_base(root_, key_, release_, size_);
  ASSERT_TRUE(base.has_value()) << base.error().message;
  EXPECT_EQ((*base)->disk.size(), 2u);
  EXPECT_EQ((*base)->disk[0].format, vmm::DiskLayer::Format::raw);
  EXPECT_TRUE((*base)->disk[1].read_only);
  constexpr int kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  EXPECT_EQ(::fcntl((*base)->memory.get(), F_GET_SEALS) & kSeals, kSeals);
}

TEST_F(BaseFiles, EveryDamageIsFound) {
  for (const char* name : {kStateFile, kOverlayFile, kEmptyFile, kMemoryFile, kManifestFile}) {
    make();
    ASSERT_EQ(open_code(), "");
    const auto path = root_ / key_ / name;
    ::chmod(path.c_str(), 0600);
    Fd fd = open_file(path, O_RDWR).value();
    ASSERT_EQ(::pwrite(fd.get(), "#", 1, name == kMemoryFile ? 8192 : 1), 1);
    const auto base = open_base(root_, key_, release_, size_);
    ASSERT_FALSE(base.has_value()) << name;
    EXPECT_EQ(base.error().kind, ErrorKind::corrupt) << name;
  }
  make();
  ASSERT_EQ(::truncate((root_ / key_ / kStateFile).c_str(), 1), 0);
  EXPECT_EQ(open_code(), "base_corrupt");
  make();
  release_.digest[10] = '9';
  EXPECT_EQ(open_code(), "base_corrupt");
}

TEST_F(BaseFiles, AnInterruptedMakingCountsForNothing) {
  {
    auto claim = BaseClaim::take(root_, key_).value();
    ASSERT_TRUE(claim.has_value());
    fill(claim->folder());  // complete, but the process ends before publish()
  }
  EXPECT_EQ(open_code(), "base_not_found");
  auto again = BaseClaim::take(root_, key_).value();
  ASSERT_TRUE(again.has_value());
  EXPECT_TRUE(std::filesystem::is_empty(again->folder()));
  again.reset();
  ASSERT_TRUE(sweep_interrupted(root_).has_value());
  EXPECT_TRUE(std::filesystem::is_empty(root_));
}

TEST_F(BaseFiles, OneMakesWhatSeveralWant) {
  auto first = BaseClaim::take(root_, key_).value();
  ASSERT_TRUE(first.has_value());
  EXPECT_FALSE(BaseClaim::take(root_, key_).value().has_value());
  ASSERT_TRUE(sweep_interrupted(root_).has_value());  // leaves what is being made
  fill(first->folder());
  ASSERT_TRUE(first->publish().has_value());
  EXPECT_EQ(open_code(), "");
}

TEST_F(BaseFiles, AManifestIsReadStrictly) {
  BaseManifest manifest;
  manifest.key = key_;
  manifest.release_digest = "sha256:x";
  manifest.state_key = "machine";
  manifest.memory.digest = manifest.state.digest = manifest.overlay.digest = manifest.empty_overlay.digest =
      "sha256:" + std::string(64, '0');
  const std::string text = write_manifest(manifest);
  ASSERT_TRUE(read_manifest(text).has_value()) << read_manifest(text).error().message;
  for (auto [from, to] : {std::pair{"\"version\":1", "\"version\":2"},
                          {"\"bytes\":0", "\"bytes\":-1"},
                          {"\"cpus\":1", "\"cpus\":1,\"more\":1"},
                          {"\"state\":{", "\"stat\":{"}}) {
    std::string other = text;
    other.replace(other.find(from), std::string_view(from).size(), to);
    EXPECT_FALSE(read_manifest(other).has_value()) << to;
  }
}

}  // namespace
}  // namespace space::tmpl
