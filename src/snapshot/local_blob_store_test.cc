#include "snapshot/local_blob_store.h"

#include <cerrno>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "snapshot/test_store.h"

namespace space::snapshot {
namespace {

using BlobStores = StoreTest;

std::size_t files_in(const std::filesystem::path& folder) { return list_directory(folder).value().size(); }

TEST_F(BlobStores, SameBytesAreStoredOnceWithinATenantAndNeverAcross) {
  const auto acme = store_->lease("acme").value(), other = store_->lease("other").value();
  const BlobRef one = put_bytes(*store_, *acme, "same bytes").value();
  EXPECT_EQ(put_bytes(*store_, *acme, "same bytes").value(), one);
  EXPECT_EQ(put_bytes(*store_, *other, "same bytes").value(), one);
  EXPECT_EQ(files_in(root() / "tenants/acme/blobs"), 1u);
  EXPECT_EQ(files_in(root() / "tenants/other/blobs"), 1u);
  struct stat a = {}, b = {};
  ::stat(blob_path(one).c_str(), &a);
  ::stat(blob_path(one, "other").c_str(), &b);
  EXPECT_NE(a.st_ino, b.st_ino);
  EXPECT_EQ(files_in(root() / "tenants/acme/staging"), 0u);
  EXPECT_EQ(read_blob(*store_, "acme", one, 100).value(), "same bytes");
  EXPECT_EQ(read_blob(*store_, "nobody", one, 100).error().code, "blob_missing");
}

TEST_F(BlobStores, AnUnfinishedBlobLeavesNothing) {
  {
    const auto lease = store_->lease("acme").value();
    auto writer = store_->create(*lease).value();
    ASSERT_TRUE(writer->write(as_bytes(noise_page(1))));
  }
  EXPECT_EQ(files_in(root() / "tenants/acme/staging"), 0u);
  EXPECT_EQ(store_->list("acme").value().size(), 0u);
  // A process that was killed leaves it to the next start.
  ASSERT_TRUE(write_file_durable(root() / "tenants/acme/staging/left", "x"));
  reopen();
  EXPECT_EQ(files_in(root() / "tenants/acme/staging"), 0u);
}

TEST_F(BlobStores, ASecondOwnerIsRefusedAndAReaderIsNot) {
  const auto second = LocalBlobStore::open(root());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, "store_in_use");
  const auto reader = LocalBlobStore::open(root(), {}, LocalBlobStore::Use::reader);
  ASSERT_TRUE(reader);
  EXPECT_EQ((*reader)->lease("acme").error().code, "store_read_only");
}

TEST_F(BlobStores, ASweepSparesWhatALeaseHeldSinceItBegan) {
  auto lease = store_->lease("acme").value();
  const BlobRef held = put_bytes(*store_, *lease, "held").value();
  auto sweep = store_->sweep("acme").value();
  EXPECT_FALSE(sweep->remove(held).value());
  EXPECT_EQ(store_->sweep("acme").error().code, "sweep_running");
  lease.reset();  // its manifest may have been published between the sweep's look and now
  EXPECT_FALSE(sweep->remove(held).value());
  sweep.reset();
  EXPECT_TRUE(store_->sweep("acme").value()->remove(held).value());
  EXPECT_FALSE(store_->has("acme", held.digest).value());
  EXPECT_EQ(store_->used("acme").value(), 0u);
  lease = store_->lease("acme").value();
  EXPECT_EQ(lease->keep(held).error().code, "blob_missing");
}

TEST_F(BlobStores, AFileThatItsWriterStillHasOpenIsFrozenBeforeItIsHashed) {
  const auto own = dir_.path() / "disk";
  const Fd writer = open_file(own, O_RDWR | O_CREAT).value();  // as a VMM has its overlay
  ASSERT_TRUE(pwrite_all(writer, as_bytes(noise_page(3)), 0));
  ASSERT_EQ(::ftruncate(writer.get(), 64 << 20), 0);
  if (!freeze_by_flag(writer, true)) GTEST_SKIP() << "this file system has no immutable files";
  ASSERT_TRUE(freeze_by_flag(writer, false));
  reopen({.quota_bytes = 0, .low_water_bytes = 0, .freeze = freeze_by_flag});
  auto lease = store_->lease("acme").value();
  const auto blob = store_->put_file(*lease, open_file(own, O_RDWR).value(), freeze_by_flag);
  ASSERT_TRUE(blob) << describe(blob.error());
  EXPECT_EQ(blob->bytes, 64u << 20);
  EXPECT_LT(store_->used("acme").value(), 1u << 20) << "holes cost nothing";
  // The old descriptor can do no harm any more.
  EXPECT_EQ(::pwrite(writer.get(), "x", 1, 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(writer.get(), 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_TRUE(verify_blob(*store_, "acme", *blob));
  EXPECT_EQ(::pwrite(store_->descriptor("acme", *blob)->get(), "x", 1, 0), -1);
  // The same file again, as after a checkpoint that failed later: thawed by its owner to be opened, and frozen again.
  ASSERT_TRUE(freeze_by_flag(writer, false));
  EXPECT_EQ(store_->put_file(*lease, open_file(own, O_RDWR).value(), freeze_by_flag).value(), *blob);
  EXPECT_EQ(::pwrite(writer.get(), "x", 1, 0), -1);
  EXPECT_EQ(files_in(root() / "tenants/acme/staging"), 0u);
  lease.reset();
  reopen({.quota_bytes = 0, .low_water_bytes = 0, .freeze = freeze_by_flag});
  EXPECT_TRUE(verify_blob(*store_, "acme", *blob));
  // Removed, it can be written to again by whoever has it.
  EXPECT_TRUE(store_->sweep("acme").value()->remove(*blob).value());
  EXPECT_EQ(files_in(root() / "tenants/acme/staging"), 0u);
  EXPECT_EQ(::pwrite(writer.get(), "x", 1, 0), 1);
}

TEST_F(BlobStores, WithoutFreezingTheStoredBytesAreACopy) {
  const Fd writer = open_file(dir_.path() / "disk", O_RDWR | O_CREAT).value();
  ASSERT_TRUE(pwrite_all(writer, as_bytes(noise_page(3)), 4096));
  const auto lease = store_->lease("acme").value();
  const auto no_freezing = [](const Fd&, bool) -> Result<> { return fail(ErrorKind::unsupported, "freeze_unsupported", "not here"); };
  const auto blob = store_->put_file(*lease, writer, no_freezing);
  ASSERT_TRUE(blob) << describe(blob.error());
  EXPECT_EQ(::pwrite(writer.get(), "x", 1, 4096), 1);
  EXPECT_TRUE(verify_blob(*store_, "acme", *blob));
}

TEST_F(BlobStores, AFailedFreezeGivesTheFileBack) {
  const Fd writer = open_file(dir_.path() / "disk", O_RDWR | O_CREAT).value();
  ASSERT_TRUE(write_all(writer, "content"));
  const auto lease = store_->lease("acme").value();
  const auto broken = [](const Fd&, bool) -> Result<> { return fail(ErrorKind::unavailable, "warden_gone", "gone"); };
  EXPECT_EQ(store_->put_file(*lease, writer, broken).error().code, "warden_gone");
  EXPECT_EQ(files_in(root() / "tenants/acme/staging"), 0u);
  EXPECT_EQ(::pwrite(writer.get(), "x", 1, 0), 1);
}

TEST_F(BlobStores, WhatIsPutTogetherIsThereAtOnceAndSettledOnce) {
  const auto lease = store_->lease("acme", Durable::together).value();
  const Fd file = open_file(dir_.path() / "disk", O_RDWR | O_CREAT).value();
  ASSERT_TRUE(write_all(file, "content"));
  const BlobRef one = put_bytes(*store_, *lease, noise_page(6)).value(), other = store_->put_file(*lease, file, {}).value();
  EXPECT_EQ(put_bytes(*store_, *lease, noise_page(6)).value(), one) << "once more";
  for (const BlobRef& blob : {one, other}) EXPECT_TRUE(verify_blob(*store_, "acme", blob));
  EXPECT_TRUE(lease->settle());
  EXPECT_TRUE(lease->settle());
  const std::string id = new_id();
  EXPECT_TRUE(store_->publish(*lease, id, "text"));
  EXPECT_EQ(store_->publish(*lease, id, "another").error().code, "manifest_exists");
  EXPECT_EQ(store_->manifest("acme", id).value(), "text");
  EXPECT_EQ(files_in(root() / "tenants/acme/staging"), 0u);
}

TEST_F(BlobStores, DamageIsNamed) {
  const auto lease = store_->lease("acme").value();
  const BlobRef blob = put_bytes(*store_, *lease, noise_page(5)).value();
  std::string content = read_file(blob_path(blob), 8192).value();
  content[100] = static_cast<char>(content[100] ^ 1);
  ASSERT_TRUE(write_file_durable(blob_path(blob), content));
  EXPECT_EQ(verify_blob(*store_, "acme", blob).error().code, "blob_corrupt");
  EXPECT_EQ(put_bytes(*store_, *lease, noise_page(5)).value(), blob) << "the same bytes again heal it";
  EXPECT_TRUE(verify_blob(*store_, "acme", blob));
  ASSERT_TRUE(write_file_durable(blob_path(blob), content.substr(1)));
  EXPECT_EQ(verify_blob(*store_, "acme", blob).error().code, "blob_truncated");
  EXPECT_EQ(put_bytes(*store_, *lease, noise_page(5)).value(), blob);
  EXPECT_TRUE(verify_blob(*store_, "acme", blob));
  ASSERT_EQ(::unlink(blob_path(blob).c_str()), 0);
  EXPECT_EQ(verify_blob(*store_, "acme", blob).error().code, "blob_missing");
}

TEST_F(BlobStores, AQuotaAndALowWaterMarkRefuseWithoutLeavingAnything) {
  reopen({.quota_bytes = 1 << 20, .low_water_bytes = 0, .freeze = {}});
  const std::string much(3 << 20, 'x');
  {
    const auto lease = store_->lease("acme").value();
    const auto refused = put_bytes(*store_, *lease, much);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, "storage_quota");
    EXPECT_EQ(refused.error().kind, ErrorKind::resource_exhausted);
  }
  EXPECT_EQ(files_in(root() / "tenants/acme/staging"), 0u);
  store_->set_quota("acme", 8 << 20);
  EXPECT_TRUE(put_bytes(*store_, *store_->lease("acme").value(), much));
  EXPECT_EQ(put_bytes(*store_, *store_->lease("other").value(), much).error().code, "storage_quota");
  EXPECT_TRUE(store_->room("acme", 4 << 20));
  EXPECT_EQ(store_->room("acme", 6 << 20).error().code, "storage_quota");
  reopen({.quota_bytes = 0, .low_water_bytes = std::uint64_t{1} << 60, .freeze = {}});
  const auto low = put_bytes(*store_, *store_->lease("acme").value(), "x");
  EXPECT_EQ(low.error().code, "store_low_water");
  EXPECT_EQ(low.error().kind, ErrorKind::insufficient_storage);
  EXPECT_EQ(store_->room("acme", 1).error().code, "store_low_water");
}

TEST_F(BlobStores, AFullDiskFailsWithAClearErrorAndTheStoreStaysWhole) {
  const auto small = dir_.path() / "small";
  ASSERT_TRUE(make_directories(small));
  // In a mount namespace of its own, so that nothing of it stays whatever happens.
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("small", small.c_str(), "tmpfs", 0, "size=2m") != 0)
      ::_exit(77);
    const auto store = LocalBlobStore::open(small);
    if (!store || !make_checkpoint(**store, key_, "acme", 1)) ::_exit(1);
    const auto full = make_checkpoint(**store, key_, "acme", 2, nullptr, {}, 0, 250);
    const auto fuller = full ? make_checkpoint(**store, key_, "acme", 3, nullptr, {}, 0, 250) : full;
    if (fuller || fuller.error().kind != ErrorKind::insufficient_storage) ::_exit(2);
    if (files_in(small / "tenants/acme/staging") != 0) ::_exit(3);
    const auto ids = (*store)->manifests("acme").value();
    for (const std::string& id : ids)
      if (!read_manifest(**store, key_, "acme", id)) ::_exit(4);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "mounting needs root";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace space::snapshot
