#include "agent/fuse_nodes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fuse.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <span>

#include "base/file.h"
#include "base/random.h"

namespace space::agent {
namespace {

constexpr int kHandleType = 1, kHandleBytes = 8;  // FILEID_INO32_GEN (Linux, include/linux/exportfs.h)
constexpr std::uint64_t kInode = 0xFFFFFFFFU;     // of a handle, and of a number

class Handle {
 public:
  static constexpr unsigned kMost = 128;  // MAX_HANDLE_SZ
  file_handle* head() { return reinterpret_cast<file_handle*>(bytes_); }

 private:
  alignas(file_handle) unsigned char bytes_[sizeof(file_handle) + kMost] = {};
};

// SipHash-2-4 of one word (Aumasson and Bernstein, 2012).
std::uint64_t sip_hash(const std::array<std::uint64_t, 2>& key, std::uint64_t word) {
  std::uint64_t a = key[0] ^ 0x736f6d6570736575U, b = key[1] ^ 0x646f72616e646f6dU, c = key[0] ^ 0x6c7967656e657261U,
                d = key[1] ^ 0x7465646279746573U;
  const auto rounds = [&](int count) {
    for (int i = 0; i < count; ++i) {
      a += b, b = std::rotl(b, 13) ^ a, a = std::rotl(a, 32);
      c += d, d = std::rotl(d, 16) ^ c;
      a += d, d = std::rotl(d, 21) ^ a;
      c += b, b = std::rotl(b, 17) ^ c, c = std::rotl(c, 32);
    }
  };
  for (const std::uint64_t block : {word, std::uint64_t{8} << 56}) {
    d ^= block;
    rounds(2);
    a ^= block;
  }
  c ^= 0xff;
  rounds(4);
  return a ^ b ^ c ^ d;
}

// Inode and generation.
std::optional<std::uint64_t> handle_of(const Fd& thing) {
  Handle handle;
  handle.head()->handle_bytes = Handle::kMost;
  int mount = 0;
  if (::name_to_handle_at(thing.get(), "", handle.head(), &mount, AT_EMPTY_PATH) != 0) return std::nullopt;
  if (handle.head()->handle_type != kHandleType || handle.head()->handle_bytes != kHandleBytes) return std::nullopt;
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, handle.head()->f_handle, sizeof bytes);
  return bytes;
}

Fd open_handle(const Fd& filesystem, std::uint64_t bytes, int flags) {
  Handle handle;
  handle.head()->handle_bytes = kHandleBytes;
  handle.head()->handle_type = kHandleType;
  std::memcpy(handle.head()->f_handle, &bytes, sizeof bytes);
  return Fd(::open_by_handle_at(filesystem.get(), handle.head(), flags | O_CLOEXEC | O_NOFOLLOW));
}

}  // namespace

Result<FuseNodes> FuseNodes::open(const std::string& folder, const std::string& key) {
  FuseNodes nodes;
  nodes.folder_ = Fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!nodes.folder_) return fail_errno(errno, fmt::format("open {}", folder));
  if (!handle_of(nodes.folder_))
    return fail(ErrorKind::unsupported, "volume_unsupported", fmt::format("the filesystem of {} has no file handles of 8 bytes", folder),
                "use ext4");
  auto text = read_file(key, sizeof nodes.key_);
  if (!text && text.error().kind == ErrorKind::not_found) {
    text.emplace(sizeof nodes.key_, '\0');
    random_bytes(std::as_writable_bytes(std::span(*text)));
    TRY_VOID(write_file_durable(key, *text, 0600));
  }
  if (!text) return fail(std::move(text).error());
  if (text->size() != sizeof nodes.key_)
    return fail(ErrorKind::corrupt, "volume_key_unreadable", fmt::format("{} holds no key", key),
                "remove it: sandboxes must mount the volume anew then");
  std::memcpy(nodes.key_.data(), text->data(), text->size());
  return nodes;
}

std::uint64_t FuseNodes::seal(std::uint64_t handle) const { return (handle & kInode) | (sip_hash(key_, handle) & ~kInode); }

std::optional<std::uint64_t> FuseNodes::number_of(const Fd& thing) const {
  const auto handle = handle_of(thing);
  if (!handle) return std::nullopt;
  return seal(*handle);
}

Fd FuseNodes::open(std::uint64_t number, int flags) const {
  if (number == FUSE_ROOT_ID) return Fd(::openat(folder_.get(), ".", flags | O_CLOEXEC));
  // Generation 0 is whichever the inode has (Linux, ext4_nfs_get_inode); then it must be the one that the number was made of.
  Fd thing = open_handle(folder_, number & kInode, O_PATH);
  if (!thing) return thing;
  const auto handle = handle_of(thing);
  if (!handle || seal(*handle) != number) {
    errno = ESTALE;
    return Fd();
  }
  return flags == O_PATH ? std::move(thing) : open_handle(folder_, *handle, flags);
}

}  // namespace space::agent
