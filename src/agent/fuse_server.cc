#include "agent/fuse_server.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/fuse.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

namespace space::agent {
namespace {

constexpr std::size_t kMostAnswers = 512, kMostRemoved = 1024, kMostClients = 1024;
constexpr std::uint64_t kFresh_s = 1;  // for so long a kernel may take for true what it was told: what others do is seen after it

fuse_attr attributes(const struct stat& st) {
  fuse_attr a{};
  a.ino = st.st_ino;
  a.size = static_cast<std::uint64_t>(st.st_size);
  a.blocks = static_cast<std::uint64_t>(st.st_blocks);
  a.atime = static_cast<std::uint64_t>(st.st_atim.tv_sec);
  a.mtime = static_cast<std::uint64_t>(st.st_mtim.tv_sec);
  a.ctime = static_cast<std::uint64_t>(st.st_ctim.tv_sec);
  a.atimensec = static_cast<std::uint32_t>(st.st_atim.tv_nsec);
  a.mtimensec = static_cast<std::uint32_t>(st.st_mtim.tv_nsec);
  a.ctimensec = static_cast<std::uint32_t>(st.st_ctim.tv_nsec);
  a.mode = st.st_mode;
  a.nlink = static_cast<std::uint32_t>(st.st_nlink);
  a.uid = st.st_uid;
  a.gid = st.st_gid;
  a.blksize = static_cast<std::uint32_t>(st.st_blksize);
  return a;
}

bool is_done_once(std::uint32_t opcode) {
  switch (opcode) {
    case FUSE_MKNOD:
    case FUSE_MKDIR:
    case FUSE_SYMLINK:
    case FUSE_LINK:
    case FUSE_UNLINK:
    case FUSE_RMDIR:
    case FUSE_RENAME:
    case FUSE_RENAME2:
    case FUSE_CREATE:
      return true;
    default:
      return false;
  }
}

}  // namespace

// One request: reads its parts, does it, and writes its answer. Every function gives 0 or a negative errno.
class FuseCall {
 public:
  FuseCall(const FuseServer& server, FuseClient& client, const fuse_in_header& head, std::span<const std::byte> body)
      : server_(server), client_(client), head_(head), body_(body) {
    answer_.resize(sizeof(fuse_out_header));
  }

  std::vector<std::byte> run() {
    if (head_.opcode == FUSE_FORGET || head_.opcode == FUSE_BATCH_FORGET) return forget(), std::vector<std::byte>();
    const int error = dispatch();
    if (error != 0) answer_.resize(sizeof(fuse_out_header));
    const fuse_out_header out{static_cast<std::uint32_t>(answer_.size()), error, head_.unique};
    std::memcpy(answer_.data(), &out, sizeof out);
    return std::move(answer_);
  }

 private:
  int dispatch() {
    switch (head_.opcode) {
      case FUSE_LOOKUP:
        return lookup();
      case FUSE_GETATTR:
        return get_attributes();
      case FUSE_SETATTR:
        return set_attributes();
      case FUSE_READLINK:
        return read_link();
      case FUSE_SYMLINK:
        return make_link();
      case FUSE_MKNOD:
        return make_node();
      case FUSE_MKDIR:
        return make_folder();
      case FUSE_UNLINK:
        return remove(0);
      case FUSE_RMDIR:
        return remove(AT_REMOVEDIR);
      case FUSE_RENAME:
        return rename<fuse_rename_in>();
      case FUSE_RENAME2:
        return rename<fuse_rename2_in>();
      case FUSE_LINK:
        return hard_link();
      case FUSE_CREATE:
        return create();
      case FUSE_OPEN:
      case FUSE_OPENDIR:
        return opened(head_.opcode == FUSE_OPENDIR);
      case FUSE_READ:
        return read();
      case FUSE_WRITE:
        return write();
      case FUSE_READDIR:
        return read_folder();
      case FUSE_STATFS:
        return statistics();
      case FUSE_FSYNC:
      case FUSE_FSYNCDIR:
        return sync();
      case FUSE_FALLOCATE:
        return allocate();
      case FUSE_LSEEK:
        return seek();
      case FUSE_RELEASE:
      case FUSE_RELEASEDIR:
      case FUSE_DESTROY:
        return 0;
      default:
        return -ENOSYS;  // a kernel asks once: extended attributes, locks between sandboxes
    }
  }

  // --- the parts of a request
  template <class T>
  const T* take() {
    if (body_.size() < sizeof(T)) return nullptr;
    std::memcpy(&storage_, body_.data(), sizeof(T));
    static_assert(sizeof(T) <= sizeof storage_);
    body_ = body_.subspan(sizeof(T));
    return reinterpret_cast<const T*>(&storage_);
  }
  std::optional<std::string> text() {
    const auto* begin = reinterpret_cast<const char*>(body_.data());
    const auto* end = static_cast<const char*>(std::memchr(begin, 0, body_.size()));
    if (!end) return std::nullopt;
    std::string out(begin, end);
    body_ = body_.subspan(out.size() + 1);
    return out;
  }
  // One part of a path and nothing else.
  std::optional<std::string> name() {
    auto out = text();
    if (!out || out->empty() || out->size() > NAME_MAX || *out == "." || *out == ".." || out->find('/') != out->npos) return std::nullopt;
    return out;
  }

  // --- nodes
  Fd node(std::uint64_t number, int flags) { return server_.nodes_.open(number, flags); }
  Fd node(int flags) { return node(head_.nodeid, flags); }
  // Only of a regular file is the content opened: a device or a pipe would do something.
  int open_file(int flags, Fd& out) {
    const Fd thing = node(O_PATH);
    struct stat st = {};
    if (!thing || ::fstat(thing.get(), &st) != 0) return -errno;
    if (S_ISDIR(st.st_mode)) return -EISDIR;
    if (!S_ISREG(st.st_mode)) return -EINVAL;
    out = node(flags | O_NONBLOCK);
    return out ? 0 : -errno;
  }

  // --- answers
  template <class T>
  void put(const T& value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    answer_.insert(answer_.end(), bytes, bytes + sizeof value);
  }
  int put_entry(int folder, const std::string& called) {
    const Fd thing(::openat(folder, called.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat st = {};
    if (!thing || ::fstat(thing.get(), &st) != 0) return -errno;
    const auto number = server_.nodes_.number_of(thing);
    if (!number) return -EIO;
    fuse_entry_out out{};
    out.nodeid = *number;
    out.entry_valid = out.attr_valid = kFresh_s;
    out.attr = attributes(st);
    put(out);
    return 0;
  }
  int put_attributes(const Fd& thing) {
    struct stat st = {};
    if (::fstat(thing.get(), &st) != 0) return -errno;
    fuse_attr_out out{};
    out.attr_valid = kFresh_s;
    out.attr = attributes(st);
    put(out);
    return 0;
  }

  // --- looking
  int lookup() {
    const auto called = name();
    if (!called) return -EINVAL;
    const Fd folder = node(O_PATH | O_DIRECTORY);
    return folder ? put_entry(folder.get(), *called) : -errno;
  }
  int get_attributes() {
    const Fd thing = node(O_PATH);
    return thing ? put_attributes(thing) : -errno;
  }
  int read_link() {
    const Fd thing = node(O_PATH);
    char target[4096];
    const ssize_t n = thing ? ::readlinkat(thing.get(), "", target, sizeof target) : -1;
    if (n < 0) return -errno;
    const auto* bytes = reinterpret_cast<const std::byte*>(target);
    answer_.insert(answer_.end(), bytes, bytes + n);
    return 0;
  }
  int statistics() {
    struct statfs fs = {};
    if (::fstatfs(server_.nodes_.folder().get(), &fs) != 0) return -errno;
    fuse_statfs_out out{};
    out.st.blocks = fs.f_blocks;
    out.st.bfree = fs.f_bfree;
    out.st.bavail = fs.f_bavail;
    out.st.files = fs.f_files;
    out.st.ffree = fs.f_ffree;
    out.st.bsize = static_cast<std::uint32_t>(fs.f_bsize);
    out.st.namelen = static_cast<std::uint32_t>(fs.f_namelen);
    out.st.frsize = static_cast<std::uint32_t>(fs.f_frsize);
    put(out);
    return 0;
  }

  // --- changing what is there
  int set_attributes() {
    const auto* in = take<fuse_setattr_in>();
    if (!in) return -EINVAL;
    const fuse_setattr_in set = *in;
    const Fd thing = node(O_PATH);
    if (!thing) return -errno;
    if ((set.valid & (FATTR_UID | FATTR_GID)) != 0 &&
        ::fchownat(thing.get(), "", (set.valid & FATTR_UID) != 0 ? set.uid : static_cast<uid_t>(-1),
                   (set.valid & FATTR_GID) != 0 ? set.gid : static_cast<gid_t>(-1), AT_EMPTY_PATH) != 0)
      return -errno;
    if ((set.valid & FATTR_MODE) != 0 && ::chmod(fmt::format("/proc/self/fd/{}", thing.get()).c_str(), set.mode & 07777) != 0)
      return -errno;
    if ((set.valid & FATTR_SIZE) != 0) {
      Fd file;
      if (const int error = open_file(O_WRONLY, file); error != 0) return error;
      if (set.size > INT64_MAX || ::ftruncate(file.get(), static_cast<off_t>(set.size)) != 0) return set.size > INT64_MAX ? -EFBIG : -errno;
    }
    if ((set.valid & (FATTR_ATIME | FATTR_MTIME | FATTR_ATIME_NOW | FATTR_MTIME_NOW)) != 0) {
      timespec times[2] = {{static_cast<time_t>(set.atime), set.atimensec}, {static_cast<time_t>(set.mtime), set.mtimensec}};
      if ((set.valid & FATTR_ATIME) == 0) times[0].tv_nsec = UTIME_OMIT;
      if ((set.valid & FATTR_MTIME) == 0) times[1].tv_nsec = UTIME_OMIT;
      if ((set.valid & FATTR_ATIME_NOW) != 0) times[0].tv_nsec = UTIME_NOW;
      if ((set.valid & FATTR_MTIME_NOW) != 0) times[1].tv_nsec = UTIME_NOW;
      if (::utimensat(thing.get(), "", times, AT_EMPTY_PATH) != 0) return -errno;
    }
    return put_attributes(thing);
  }

  // --- making and removing. What is made belongs to whoever asked; in a folder with the set-gid bit, to the folder's group.
  int give(int folder, const std::string& called) {
    struct stat st = {};
    if (::fstat(folder, &st) != 0) return -errno;
    const gid_t group = (st.st_mode & S_ISGID) != 0 ? st.st_gid : head_.gid;
    return ::fchownat(folder, called.c_str(), head_.uid, group, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : -errno;
  }
  int made(int folder, const std::string& called) {
    if (const int error = give(folder, called); error != 0) return error;
    return put_entry(folder, called);
  }
  int make_node() {
    const auto* in = take<fuse_mknod_in>();
    const mode_t mode = in ? in->mode : 0;
    const auto called = name();
    if (!in || !called) return -EINVAL;
    if (!S_ISREG(mode) && !S_ISFIFO(mode) && !S_ISSOCK(mode)) return -EPERM;  // no devices
    const Fd folder = node(O_PATH | O_DIRECTORY);
    if (!folder || ::mknodat(folder.get(), called->c_str(), mode & (S_IFMT | 0777), 0) != 0) return -errno;
    return made(folder.get(), *called);
  }
  int make_folder() {
    const auto* in = take<fuse_mkdir_in>();
    const mode_t mode = in ? in->mode : 0;
    const auto called = name();
    if (!in || !called) return -EINVAL;
    const Fd folder = node(O_PATH | O_DIRECTORY);
    if (!folder || ::mkdirat(folder.get(), called->c_str(), mode & 01777) != 0) return -errno;
    return made(folder.get(), *called);
  }
  int make_link() {
    const auto called = name();
    const auto target = text();
    if (!called || !target) return -EINVAL;
    const Fd folder = node(O_PATH | O_DIRECTORY);
    if (!folder || ::symlinkat(target->c_str(), folder.get(), called->c_str()) != 0) return -errno;
    return made(folder.get(), *called);
  }
  int hard_link() {
    const auto* in = take<fuse_link_in>();
    const std::uint64_t of = in ? in->oldnodeid : 0;
    const auto called = name();
    if (!in || !called) return -EINVAL;
    const Fd thing = node(of, O_PATH), folder = node(O_PATH | O_DIRECTORY);
    if (!thing || !folder || ::linkat(thing.get(), "", folder.get(), called->c_str(), AT_EMPTY_PATH) != 0) return -errno;
    return put_entry(folder.get(), *called);
  }
  int create() {
    const auto* in = take<fuse_create_in>();
    const fuse_create_in wanted = in ? *in : fuse_create_in{};
    const auto called = name();
    if (!in || !called) return -EINVAL;
    const Fd folder = node(O_PATH | O_DIRECTORY);
    if (!folder) return -errno;
    const int flags = O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    Fd file(::openat(folder.get(), called->c_str(), flags | O_CREAT | O_EXCL, wanted.mode & 0777));
    if (file) {
      if (const int error = give(folder.get(), *called); error != 0) return error;
    } else if (errno == EEXIST && (wanted.flags & O_EXCL) == 0) {
      file = Fd(::openat(folder.get(), called->c_str(), flags | static_cast<int>(wanted.flags & O_TRUNC)));
    }
    if (!file) return -errno;
    if (const int error = put_entry(folder.get(), *called); error != 0) return error;
    put(fuse_open_out{});
    return 0;
  }
  // A file's last name goes: whoever has it open reads on.
  void keep_removed(int folder, const std::string& called) {
    Fd thing(::openat(folder, called.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat st = {};
    if (!thing || ::fstat(thing.get(), &st) != 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1) return;
    const auto number = server_.nodes_.number_of(thing);
    const std::lock_guard hold(client_.lock);
    if (number && client_.removed.size() < kMostRemoved) client_.removed.insert_or_assign(*number, std::move(thing));
  }
  int remove(int flags) {
    const auto called = name();
    if (!called) return -EINVAL;
    const Fd folder = node(O_PATH | O_DIRECTORY);
    if (!folder) return -errno;
    if (flags == 0) keep_removed(folder.get(), *called);
    return ::unlinkat(folder.get(), called->c_str(), flags) == 0 ? 0 : -errno;
  }
  template <class T>
  int rename() {
    const auto* in = take<T>();
    if (!in) return -EINVAL;
    const std::uint64_t into = in->newdir;
    unsigned flags = 0;
    if constexpr (std::is_same_v<T, fuse_rename2_in>) flags = in->flags;
    const auto from = name(), to = name();
    if (!from || !to || (flags & ~static_cast<unsigned>(RENAME_NOREPLACE | RENAME_EXCHANGE)) != 0) return -EINVAL;
    const Fd old_folder = node(O_PATH | O_DIRECTORY), new_folder = node(into, O_PATH | O_DIRECTORY);
    if (!old_folder || !new_folder) return -errno;
    if (flags == 0) keep_removed(new_folder.get(), *to);
    return ::renameat2(old_folder.get(), from->c_str(), new_folder.get(), to->c_str(), flags) == 0 ? 0 : -errno;
  }
  void forget() {
    const std::lock_guard hold(client_.lock);
    if (head_.opcode == FUSE_FORGET) {
      client_.removed.erase(head_.nodeid);
      return;
    }
    const auto* in = take<fuse_batch_forget_in>();
    for (std::uint32_t i = 0, count = in ? in->count : 0; i < count; ++i) {
      const auto* one = take<fuse_forget_one>();
      if (!one) return;
      client_.removed.erase(one->nodeid);
    }
  }

  // --- content
  int opened(bool folder) {
    const Fd thing = node(O_PATH | (folder ? O_DIRECTORY : 0));
    if (!thing) return -errno;
    put(fuse_open_out{});  // without FOPEN_KEEP_CACHE: a file that is opened is read anew
    return 0;
  }
  int read() {
    const auto* in = take<fuse_read_in>();
    if (!in || in->size > kFuseData || in->offset > INT64_MAX) return -EINVAL;
    const std::uint64_t offset = in->offset;
    const std::size_t size = in->size;
    Fd file;
    if (const int error = open_file(O_RDONLY | O_NOATIME, file); error != 0) return error;
    const std::size_t begin = answer_.size();
    answer_.resize(begin + size);
    std::size_t got = 0;
    while (got < size) {
      const ssize_t n = ::pread(file.get(), answer_.data() + begin + got, size - got, static_cast<off_t>(offset + got));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return -errno;
      if (n == 0) break;
      got += static_cast<std::size_t>(n);
    }
    answer_.resize(begin + got);
    return 0;
  }
  int write() {
    const auto* in = take<fuse_write_in>();
    if (!in || in->size > kFuseData || in->size != body_.size() || in->offset > INT64_MAX - kFuseData) return -EINVAL;
    const std::uint64_t offset = in->offset;
    Fd file;
    if (const int error = open_file(O_WRONLY, file); error != 0) return error;
    std::size_t done = 0;
    while (done < body_.size()) {
      const ssize_t n = ::pwrite(file.get(), body_.data() + done, body_.size() - done, static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && done == 0) return -errno;
      if (n <= 0) break;
      done += static_cast<std::size_t>(n);
    }
    fuse_write_out out{};
    out.size = static_cast<std::uint32_t>(done);
    put(out);
    return 0;
  }
  // A place in a folder is ext4's own, a hash of the name, which means the same in every opening of it.
  int read_folder() {
    struct Found {  // getdents64(2)
      std::uint64_t ino;
      std::int64_t next;
      std::uint16_t length;
      std::uint8_t type;
    };
    const auto* in = take<fuse_read_in>();
    if (!in || in->size > kFuseData || in->offset > INT64_MAX) return -EINVAL;
    const std::size_t most = in->size;
    const std::uint64_t offset = in->offset;
    const Fd folder = node(O_RDONLY | O_DIRECTORY);
    if (!folder || ::lseek(folder.get(), static_cast<off_t>(offset), SEEK_SET) < 0) return -errno;
    const std::size_t begin = answer_.size();
    alignas(8) char buffer[16 << 10];
    for (;;) {
      const long n = ::syscall(SYS_getdents64, folder.get(), buffer, sizeof buffer);
      if (n < 0) return -errno;
      if (n == 0) return 0;
      for (long at = 0; at < n;) {
        Found found{};
        std::memcpy(&found, buffer + at, offsetof(Found, type) + 1);
        const std::string_view called(buffer + at + offsetof(Found, type) + 1);
        at += found.length;
        const std::size_t padded = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + called.size());
        if (answer_.size() - begin + padded > most) return 0;
        const std::size_t place = answer_.size();
        answer_.resize(place + padded);
        fuse_dirent out{};
        out.ino = found.ino;
        out.off = static_cast<std::uint64_t>(found.next);
        out.namelen = static_cast<std::uint32_t>(called.size());
        out.type = found.type;
        std::memcpy(answer_.data() + place, &out, FUSE_NAME_OFFSET);
        std::memcpy(answer_.data() + place + FUSE_NAME_OFFSET, called.data(), called.size());
      }
    }
  }
  int sync() {
    const auto* in = take<fuse_fsync_in>();
    if (!in) return -EINVAL;
    const bool data_alone = (in->fsync_flags & FUSE_FSYNC_FDATASYNC) != 0;
    Fd thing;
    if (head_.opcode == FUSE_FSYNCDIR) {
      thing = node(O_RDONLY | O_DIRECTORY);
      if (!thing) return -errno;
    } else if (const int error = open_file(O_RDONLY, thing); error != 0) {
      return error;
    }
    return (data_alone ? ::fdatasync(thing.get()) : ::fsync(thing.get())) == 0 ? 0 : -errno;
  }
  int allocate() {
    const auto* in = take<fuse_fallocate_in>();
    if (!in) return -EINVAL;
    const fuse_fallocate_in wanted = *in;
    Fd file;
    if (const int error = open_file(O_WRONLY, file); error != 0) return error;
    if ((wanted.mode & ~static_cast<std::uint32_t>(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) != 0)
      return -EOPNOTSUPP;
    if (wanted.offset > INT64_MAX || wanted.length > INT64_MAX) return -EFBIG;
    return ::fallocate(file.get(), static_cast<int>(wanted.mode), static_cast<off_t>(wanted.offset), static_cast<off_t>(wanted.length)) == 0
               ? 0
               : -errno;
  }
  int seek() {
    const auto* in = take<fuse_lseek_in>();
    if (!in || (in->whence != SEEK_DATA && in->whence != SEEK_HOLE) || in->offset > INT64_MAX) return -EINVAL;
    const fuse_lseek_in wanted = *in;
    Fd file;
    if (const int error = open_file(O_RDONLY, file); error != 0) return error;
    const off_t at = ::lseek(file.get(), static_cast<off_t>(wanted.offset), static_cast<int>(wanted.whence));
    if (at < 0) return -errno;
    fuse_lseek_out out{};
    out.offset = static_cast<std::uint64_t>(at);
    put(out);
    return 0;
  }

  const FuseServer& server_;
  FuseClient& client_;
  const fuse_in_header head_;
  std::span<const std::byte> body_;
  std::vector<std::byte> answer_;
  alignas(8) std::byte storage_[128];
};

Result<std::unique_ptr<FuseServer>> FuseServer::open(const std::string& folder, const std::string& key) {
  TRY(FuseNodes nodes, FuseNodes::open(folder, key));
  return std::unique_ptr<FuseServer>(new FuseServer(std::move(nodes)));
}

std::vector<std::byte> FuseServer::serve(FuseClient& client, std::span<const std::byte> request) const {
  fuse_in_header head{};
  if (request.size() < sizeof head) return {};
  std::memcpy(&head, request.data(), sizeof head);
  FuseCall call(*this, client, head, request.subspan(sizeof head));
  if (!is_done_once(head.opcode)) return call.run();
  {
    std::unique_lock hold(client.lock);
    client.answered.wait(hold, [&] { return !client.under_way.contains(head.unique); });
    if (const auto known = client.answers.find(head.unique); known != client.answers.end()) return known->second;
    client.under_way.insert(head.unique);
  }
  std::vector<std::byte> answer = call.run();
  const std::lock_guard hold(client.lock);
  client.under_way.erase(head.unique);
  client.answered.notify_all();
  if (client.answers.insert_or_assign(head.unique, answer).second) client.order.push_back(head.unique);
  if (client.order.size() > kMostAnswers) {
    client.answers.erase(client.order.front());
    client.order.pop_front();
  }
  return answer;
}

std::shared_ptr<FuseClient> FuseServer::client(const std::string& name) {
  const std::lock_guard hold(lock_);
  std::erase(used_, name);
  used_.push_back(name);
  if (used_.size() > kMostClients) {
    clients_.erase(used_.front());
    used_.pop_front();
  }
  auto& client = clients_[name];
  if (!client) client = std::make_shared<FuseClient>();
  return client;
}

}  // namespace space::agent
