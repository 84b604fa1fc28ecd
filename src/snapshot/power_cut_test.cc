// A process that takes checkpoints, collects garbage and deletes is stopped after each system call that changes a file. What lies on
// the disk then is copied and opened as after a restart, in two ways: as after kill -9 (all that was written is there) and as after
// a power cut (a file that was not synced since it was last written is empty). Each time the store verifies, every checkpoint whose
// taking was reported is there, and none is there by half.
#include <csignal>
#include <filesystem>
#include <set>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "snapshot/test_store.h"
#include "snapshot/upkeep.h"

namespace space::snapshot {
namespace {
namespace fs = std::filesystem;

const std::set<long> kChanges = {SYS_write,  SYS_pwrite64, SYS_ftruncate, SYS_rename, SYS_renameat2, SYS_linkat,
                                 SYS_unlink, SYS_rmdir,    SYS_mkdir,     SYS_fsync,  SYS_fdatasync, SYS_copy_file_range};
const std::set<long> kWrites = {SYS_write, SYS_pwrite64, SYS_ftruncate, SYS_copy_file_range};

// Tells the observer, durably enough for a file outside the store, that `count` checkpoints were reported as taken.
void report(const fs::path& file, int count) { (void)write_file_durable(file, std::to_string(count)); }

int workload(const fs::path& root, const fs::path& progress, const ManifestKey& key) {
  LocalStoreOptions options;
  options.waiting = std::launch::deferred;  // one thread is watched
  const auto store = LocalBlobStore::open(root, options);
  if (!store) return 1;
  const auto first = make_checkpoint(**store, key, "acme", 1);
  if (!first) return 2;
  report(progress, 1);
  if (!make_checkpoint(**store, key, "acme", 500, &*first->memory, first->id, 10, 33, Durable::together)) return 3;
  report(progress, 2);
  {
    const auto lease = (*store)->lease("acme");
    const auto disk = open_file(root.parent_path() / "disk", O_RDWR | O_CREAT);
    if (!lease || !disk || !write_all(*disk, noise_page(3)) || !(*store)->put_file(**lease, *disk, {})) return 4;
  }
  // From here on the first is being deleted: it may be there or not.
  report(progress, 1);
  if (!(*store)->withdraw("acme", first->id) || !collect_garbage(**store, key, "acme")) return 5;
  if (!make_checkpoint(**store, key, "acme", 900)) return 6;
  report(progress, 2);
  // Blobs that are there already, put by one who does not go on to settle: who names them makes them durable.
  {
    const auto idle = (*store)->lease("acme", Durable::together);
    if (!idle || !put_bytes(**store, **idle, "device state 901") || !put_bytes(**store, **idle, noise_page(901 + 7777))) return 7;
    if (!make_checkpoint(**store, key, "acme", 901, nullptr, {}, 0, 40, Durable::together)) return 8;
  }
  report(progress, 3);
  return 0;
}

class PowerCut : public StoreTest {
 protected:
  void inspect(const std::set<ino_t>& unsynced, const fs::path& progress, const char* how) {
    const fs::path copy = dir_.path() / "cut";
    ASSERT_TRUE(remove_tree(copy));
    fs::copy(root(), copy, fs::copy_options::recursive);
    for (const auto& entry : fs::recursive_directory_iterator(root())) {
      struct stat st {};
      if (::lstat(entry.path().c_str(), &st) != 0 || !S_ISREG(st.st_mode) || !unsynced.contains(st.st_ino)) continue;
      ASSERT_EQ(::truncate((copy / fs::relative(entry.path(), root())).c_str(), 0), 0);
    }
    const auto store = LocalBlobStore::open(copy);
    ASSERT_TRUE(store) << describe(store.error());
    const auto found = verify_store(**store, key_);
    ASSERT_TRUE(found) << describe(found.error());
    for (const StoreFault& fault : found->faults) ADD_FAILURE() << how << ": " << describe(fault.error);
    const auto reported = read_file(progress, 16).value_or("0");
    EXPECT_GE(found->checkpoints, std::stoul(reported)) << how;
    const auto collected = collect_garbage(**store, key_, "acme");
    ASSERT_TRUE(collected) << describe(collected.error());
    EXPECT_TRUE(verify_store(**store, key_)->faults.empty()) << how << ", after a collection";
    ++cuts_;
  }
  int cuts_ = 0;
};

TEST_F(PowerCut, AtAnyInstantLeavesTheOldOrTheNewState) {
  store_.reset();
  ASSERT_TRUE(remove_tree(root()));
  const fs::path progress = dir_.path() / "progress";
  const pid_t child = ::fork();
  if (child == 0) {
    ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    ::raise(SIGSTOP);
    ::_exit(workload(root(), progress, key_));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(::ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL), 0);
  std::set<ino_t> unsynced;
  for (bool entering = true;; entering = !entering) {
    ASSERT_EQ(::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr), 0);
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (WIFEXITED(status) || !WIFSTOPPED(status) || WSTOPSIG(status) != (SIGTRAP | 0x80)) break;
    if (entering) continue;
    user_regs_struct registers{};
    ASSERT_EQ(::ptrace(PTRACE_GETREGS, child, nullptr, &registers), 0);
    const auto call = static_cast<long>(registers.orig_rax);
    if (!kChanges.contains(call)) continue;
    struct stat st {};
    const auto fd = call == SYS_copy_file_range ? registers.rdx : registers.rdi;
    if (kWrites.contains(call) || call == SYS_fsync || call == SYS_fdatasync) {
      if (::stat(("/proc/" + std::to_string(child) + "/fd/" + std::to_string(fd)).c_str(), &st) == 0) {
        if (kWrites.contains(call)) {
          unsynced.insert(st.st_ino);
        } else {
          unsynced.erase(st.st_ino);
        }
      }
    }
    if (!fs::exists(root())) continue;
    inspect({}, progress, "killed");
    inspect(unsynced, progress, "power cut");
    if (HasFatalFailure() || HasNonfatalFailure()) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      FAIL() << "after system call " << call;
    }
  }
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_GT(cuts_, 150);
}

}  // namespace
}  // namespace space::snapshot
