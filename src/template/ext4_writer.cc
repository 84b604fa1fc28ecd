#include "template/ext4_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "base/file.h"
#include "template/command.h"

// C headers without a thought for C++ or for our warnings.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wpedantic"
#include <ext2fs/ext2fs.h>
#pragma GCC diagnostic pop

namespace space::tmpl {
namespace fs = std::filesystem;
namespace {

// Fixed so that the same files give the same image; a guest sees one disk, so nothing has to be told apart by them.
constexpr const char* kUuid = "5ace0000-0000-4000-8000-000000000001";
constexpr const char* kHashSeed = "5ace0000-0000-4000-8000-000000000002";
constexpr const char* kFeatures =
    "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_"
    "isize,metadata_csum";

tl::unexpected<Error> failure(errcode_t code, std::string_view doing) {
  const auto kind = code == EXT2_ET_BLOCK_ALLOC_FAIL || code == EXT2_ET_INODE_ALLOC_FAIL || code == ENOSPC ? ErrorKind::insufficient_storage
                                                                                                           : ErrorKind::internal;
  return fail(kind, "template_image", fmt::format("cannot {} in the image: {}", doing, error_message(code)),
              kind == ErrorKind::insufficient_storage ? "raise disk_mib in the template's template.toml" : "");
}

struct CloseFilesystem {
  void operator()(ext2_filsys filesystem) const { ext2fs_free(filesystem); }
};

}  // namespace

struct Ext4Writer::State {
  std::unique_ptr<struct_ext2_filsys, CloseFilesystem> filesystem;
  std::map<std::string, ext2_ino_t> folders, files;
  std::string path;  // of the file begun last
  ext2_file_t file = nullptr;

  ~State() {
    if (file) ext2fs_file_close(file);
  }
  ext2_filsys fs() const { return filesystem.get(); }

  // The folder that `path` goes into, and its last name. The name must be new.
  Result<std::pair<ext2_ino_t, std::string>> place(const std::string& path_) const {
    const auto slash = path_.rfind('/');
    const auto parent = slash == std::string::npos ? std::string() : path_.substr(0, slash);
    const auto name = slash == std::string::npos ? path_ : path_.substr(slash + 1);
    const auto found = folders.find(parent);
    if (found == folders.end() || name.empty() || name == "." || name == ".." || name.size() > EXT2_NAME_LEN || folders.contains(path_) ||
        files.contains(path_))
      return fail(ErrorKind::invalid_argument, "template_image", fmt::format("'{}' has no place in the image", path_),
                  "give each path once, and folders before what lies in them");
    return std::pair{found->second, name};
  }

  // Runs `add`, which puts a name into `parent`, and once more after making the folder larger.
  template <class F>
  Result<> with_room(ext2_ino_t parent, const std::string& what, F add) const {
    errcode_t code = add();
    if (code == EXT2_ET_DIR_NO_SPACE) {
      code = ext2fs_expand_dir(fs(), parent);
      if (code == 0) code = add();
    }
    if (code != 0) return failure(code, "add " + what);
    return {};
  }

  Result<> set_attributes(ext2_ino_t inode, const FileAttributes& attributes, const std::string& what) const {
    ext2_inode_large record{};
    auto* const plain = reinterpret_cast<ext2_inode*>(&record);
    if (auto code = ext2fs_read_inode_full(fs(), inode, plain, sizeof record)) return failure(code, "read the inode of " + what);
    record.i_mode = static_cast<__u16>((record.i_mode & LINUX_S_IFMT) | (attributes.mode & 07777));
    record.i_uid = static_cast<__u16>(attributes.uid);
    record.osd2.linux2.l_i_uid_high = static_cast<__u16>(attributes.uid >> 16);
    record.i_gid = static_cast<__u16>(attributes.gid);
    record.osd2.linux2.l_i_gid_high = static_cast<__u16>(attributes.gid >> 16);
    const auto seconds = static_cast<__u32>(attributes.mtime);
    record.i_mtime = record.i_atime = record.i_ctime = record.i_crtime = seconds;
    record.i_extra_isize = sizeof record - EXT2_GOOD_OLD_INODE_SIZE;
    if (auto code = ext2fs_write_inode_full(fs(), inode, plain, sizeof record)) return failure(code, "write the inode of " + what);
    if (attributes.extended.empty()) return {};

    ext2_xattr_handle* handle = nullptr;
    if (auto code = ext2fs_xattrs_open(fs(), inode, &handle)) return failure(code, "open the attributes of " + what);
    auto set = [&]() -> errcode_t {
      if (auto code = ext2fs_xattrs_read(handle)) return code;
      for (const auto& [name, value] : attributes.extended)
        if (auto code = ext2fs_xattr_set(handle, name.c_str(), value.data(), value.size())) return code;
      return ext2fs_xattrs_write(handle);
    };
    const auto code = set();
    ext2fs_xattrs_close(&handle);
    if (code != 0) return failure(code, "set the attributes of " + what);
    return {};
  }
};

Ext4Writer::Ext4Writer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Ext4Writer::Ext4Writer(Ext4Writer&&) noexcept = default;
Ext4Writer& Ext4Writer::operator=(Ext4Writer&&) noexcept = default;
Ext4Writer::~Ext4Writer() = default;

Result<Ext4Writer> Ext4Writer::create(const fs::path& image, std::uint32_t size_mib, std::int64_t now) {
  {
    TRY(auto fd, open_file(image, O_RDWR | O_CREAT | O_TRUNC, 0644));
    if (ftruncate(fd.get(), static_cast<off_t>(size_mib) << 20) != 0) return fail_errno(errno, "size " + image.string());
  }
  // Nothing is left for the guest to initialise: a lazy table would be written by every sandbox into its own layer.
  Command make;
  make.argv = {"mke2fs",
               "-q",
               "-F",
               "-t",
               "ext4",
               "-b",
               "4096",
               "-I",
               "256",
               "-i",
               "16384",
               "-m",
               "0",
               "-O",
               kFeatures,
               "-U",
               kUuid,
               "-J",
               "size=16",
               "-E",
               fmt::format("lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0,hash_seed={},packed_meta_blocks=1", kHashSeed),
               "-o",
               "Linux",
               "-M",
               "/",
               image.string()};
  // The settings of the machine's mke2fs.conf are not ours; the date is e2fsprogs's own switch for its tests.
  make.environment = {"MKE2FS_CONFIG=/dev/null", fmt::format("E2FSPROGS_FAKE_TIME={}", now)};
  TRY_VOID(run_command(make));

  auto state = std::make_unique<State>();
  ext2_filsys opened = nullptr;
  if (auto code = ext2fs_open(image.c_str(), EXT2_FLAG_RW | EXT2_FLAG_64BITS | EXT2_FLAG_EXCLUSIVE, 0, 0, unix_io_manager, &opened))
    return failure(code, "open the file system");
  state->filesystem.reset(opened);
  opened->now = static_cast<time_t>(now);
  if (auto code = ext2fs_read_bitmaps(opened)) return failure(code, "read the bitmaps");
  state->folders.emplace("", EXT2_ROOT_INO);
  state->folders.emplace("lost+found", EXT2_GOOD_OLD_FIRST_INO);
  return Ext4Writer(std::move(state));
}

Result<> Ext4Writer::folder(const std::string& path, const FileAttributes& attributes) {
  if (path.empty()) return state_->set_attributes(EXT2_ROOT_INO, attributes, "the root");
  TRY(auto place, state_->place(path));
  const auto& [parent, name] = place;
  ext2_ino_t inode = 0;
  if (auto code = ext2fs_new_inode(state_->fs(), parent, LINUX_S_IFDIR | 0755, nullptr, &inode))
    return failure(code, "make folder " + path);
  TRY_VOID(state_->with_room(parent, path,
                             [&, parent = parent, &name = name] { return ext2fs_mkdir(state_->fs(), parent, inode, name.c_str()); }));
  state_->folders.emplace(path, inode);
  return state_->set_attributes(inode, attributes, path);
}

Result<> Ext4Writer::begin_file(const std::string& path, const FileAttributes& attributes) {
  TRY(auto place, state_->place(path));
  const auto& [parent, name] = place;
  ext2_ino_t inode = 0;
  if (auto code = ext2fs_new_inode(state_->fs(), parent, LINUX_S_IFREG | 0644, nullptr, &inode)) return failure(code, "make file " + path);
  TRY_VOID(state_->with_room(parent, path, [&, parent = parent, &name = name] {
    return ext2fs_link(state_->fs(), parent, name.c_str(), inode, EXT2_FT_REG_FILE);
  }));
  ext2fs_inode_alloc_stats2(state_->fs(), inode, +1, 0);
  ext2_inode record{};
  record.i_mode = LINUX_S_IFREG | 0644;
  record.i_links_count = 1;
  record.i_flags = EXT4_EXTENTS_FL;
  ext2_extent_handle_t extents = nullptr;
  if (auto code = ext2fs_extent_open2(state_->fs(), inode, &record, &extents)) return failure(code, "make file " + path);
  ext2fs_extent_free(extents);
  if (auto code = ext2fs_write_new_inode(state_->fs(), inode, &record)) return failure(code, "make file " + path);
  TRY_VOID(state_->set_attributes(inode, attributes, path));
  if (auto code = ext2fs_file_open(state_->fs(), inode, EXT2_FILE_WRITE, &state_->file)) return failure(code, "open file " + path);
  state_->path = path;
  state_->files.emplace(path, inode);
  return {};
}

Result<> Ext4Writer::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto piece = static_cast<unsigned>(std::min<std::size_t>(bytes.size(), 1 << 20));
    unsigned written = 0;
    if (auto code = ext2fs_file_write(state_->file, bytes.data(), piece, &written)) return failure(code, "write " + state_->path);
    bytes.remove_prefix(written);
  }
  return {};
}

Result<> Ext4Writer::end_file() {
  const auto code = ext2fs_file_close(std::exchange(state_->file, nullptr));
  if (code != 0) return failure(code, "write " + state_->path);
  return {};
}

Result<> Ext4Writer::symlink(const std::string& path, const std::string& target, const FileAttributes& attributes) {
  TRY(auto place, state_->place(path));
  const auto& [parent, name] = place;
  ext2_ino_t inode = 0;
  if (auto code = ext2fs_new_inode(state_->fs(), parent, LINUX_S_IFLNK | 0777, nullptr, &inode)) return failure(code, "make link " + path);
  TRY_VOID(state_->with_room(parent, path, [&, parent = parent, &name = name] {
    return ext2fs_symlink(state_->fs(), parent, inode, name.c_str(), target.c_str());
  }));
  state_->files.emplace(path, inode);
  return state_->set_attributes(inode, attributes, path);
}

Result<> Ext4Writer::hard_link(const std::string& path, const std::string& target) {
  TRY(auto place, state_->place(path));
  const auto& [parent, name] = place;
  const auto found = state_->files.find(target);
  if (found == state_->files.end())
    return fail(ErrorKind::invalid_argument, "template_image",
                fmt::format("'{}' is a hard link to '{}', which is not there", path, target));
  ext2_inode record{};
  if (auto code = ext2fs_read_inode(state_->fs(), found->second, &record)) return failure(code, "read the inode of " + target);
  const int type = LINUX_S_ISLNK(record.i_mode) ? EXT2_FT_SYMLINK : EXT2_FT_REG_FILE;
  TRY_VOID(state_->with_room(
      parent, path, [&, parent = parent, &name = name] { return ext2fs_link(state_->fs(), parent, name.c_str(), found->second, type); }));
  ++record.i_links_count;
  if (auto code = ext2fs_write_inode(state_->fs(), found->second, &record)) return failure(code, "write the inode of " + target);
  state_->files.emplace(path, found->second);
  return {};
}

Result<> Ext4Writer::finish() {
  auto* opened = state_->filesystem.release();
  if (auto code = ext2fs_close_free(&opened)) {
    if (opened) ext2fs_free(opened);
    return failure(code, "write the file system out");
  }
  return {};
}

}  // namespace space::tmpl
