#include "template/image.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "base/digest.h"
#include "base/encoding.h"
#include "base/file.h"
#include "template/archive_reader.h"
#include "template/ext4_writer.h"

namespace space::tmpl {
namespace {

constexpr std::size_t kBlock = 4096;

tl::unexpected<Error> bad_entry(std::string_view path, std::string_view what) {
  return fail(ErrorKind::invalid_argument, "template_image", fmt::format("'{}' in the root filesystem {}", path.substr(0, 500), what),
              "correct the template's definition");
}

// "./usr/bin/" → "usr/bin", "." → "". A path that leaves the root is refused.
Result<std::string> normal_path(std::string_view text) {
  std::string out;
  std::string_view rest = text;
  while (!rest.empty()) {
    const auto slash = rest.find('/');
    const auto name = rest.substr(0, slash);
    rest.remove_prefix(slash == std::string_view::npos ? rest.size() : slash + 1);
    if (name == "..") return bad_entry(text, "leaves the root");
    if (name.empty() || name == ".") continue;
    if (!out.empty()) out += '/';
    out += name;
  }
  return out;
}

FileAttributes attributes_of(archive_entry* entry) {
  FileAttributes out;
  out.mode = archive_entry_perm(entry);
  out.uid = static_cast<uid_t>(archive_entry_uid(entry));
  out.gid = static_cast<gid_t>(archive_entry_gid(entry));
  out.mtime = archive_entry_mtime(entry);
  archive_entry_xattr_reset(entry);
  const char* name = nullptr;
  const void* value = nullptr;
  std::size_t size = 0;
  while (archive_entry_xattr_next(entry, &name, &value, &size) == ARCHIVE_OK)
    out.extended.emplace(name, std::string(static_cast<const char*>(value), size));
  return out;
}

std::string manifest_line(char type, const std::string& path, const FileAttributes& attributes, std::string_view rest) {
  auto line = fmt::format("/{} {} {:04o} {}:{}{}", percent_encode(path, true), type, attributes.mode, attributes.uid, attributes.gid, rest);
  for (const auto& [name, value] : attributes.extended) line += fmt::format(" {}={}", name, base64_encode(as_bytes(value)));
  return line + "\n";
}

FileAttributes made_here(mode_t mode, std::int64_t mtime) {
  FileAttributes out;
  out.mode = mode;
  out.mtime = mtime;
  return out;
}

// The build's own files, after those of the archive: their folders are there, or are made.
Result<> add_files(const ImageSpec& spec, const std::set<std::string>& folders, std::int64_t now, Ext4Writer& image,
                   std::vector<std::string>& lines) {
  std::set<std::string> made = folders;
  for (const auto& [path, content] : spec.files) {
    for (std::size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
      const std::string folder = path.substr(0, slash);
      if (!made.insert(folder).second) continue;
      const auto attributes = made_here(0755, now);
      TRY_VOID(image.folder(folder, attributes));
      lines.push_back(manifest_line('d', folder, attributes, ""));
    }
    const auto attributes = made_here(0644, now);
    TRY_VOID(image.begin_file(path, attributes));
    TRY_VOID(image.append(content));
    TRY_VOID(image.end_file());
    lines.push_back(manifest_line('f', path, attributes, fmt::format(" {} {}", content.size(), hex_encode(sha256(content)))));
  }
  return {};
}

// Puts the reader's current entry into the image and describes it.
Result<std::string> add_entry(ArchiveReader& archive, archive_entry* entry, Ext4Writer& image) {
  TRY(auto path, normal_path(archive_entry_pathname(entry) ? archive_entry_pathname(entry) : ""));
  const auto attributes = attributes_of(entry);
  if (const char* target = archive_entry_hardlink(entry)) {
    TRY(auto other, normal_path(target));
    TRY_VOID(image.hard_link(path, other));
    return fmt::format("/{} = /{}\n", percent_encode(path, true), percent_encode(other, true));
  }
  switch (archive_entry_filetype(entry)) {
    case AE_IFDIR: {
      TRY_VOID(image.folder(path, attributes));
      return manifest_line('d', path, attributes, "");
    }
    case AE_IFLNK: {
      if (path.starts_with("dev/")) return "";
      const std::string target = archive_entry_symlink(entry) ? archive_entry_symlink(entry) : "";
      TRY_VOID(image.symlink(path, target, attributes));
      return manifest_line('l', path, attributes, " " + percent_encode(target, true));
    }
    case AE_IFREG: {
      TRY_VOID(image.begin_file(path, attributes));
      Sha256Stream hash;
      std::uint64_t size = 0;
      TRY_VOID(archive.each_piece([&](std::string_view piece) {
        hash.add(as_bytes(piece));
        size += piece.size();
        return image.append(piece);
      }));
      TRY_VOID(image.end_file());
      return manifest_line('f', path, attributes, fmt::format(" {} {}", size, hex_encode(hash.finish())));
    }
    default:
      if (path.starts_with("dev/")) return "";
      return bad_entry(path, "is neither a file, nor a folder, nor a link");
  }
}

}  // namespace

Result<std::string> digest_of_image(const std::filesystem::path& path) {
  TRY(auto fd, open_file(path, O_RDONLY));
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) return fail_errno(errno, "stat " + path.string());
  static const std::vector<std::byte> zeros(kBlock);
  std::vector<std::byte> buffer(1 << 20);
  Sha256Stream hash;
  off_t at = 0;
  while ((at = lseek(fd.get(), at, SEEK_DATA)) >= 0) {
    at -= at % static_cast<off_t>(buffer.size());
    const auto length = std::min<off_t>(static_cast<off_t>(buffer.size()), status.st_size - at);
    TRY_VOID(pread_all(fd, std::span(buffer).first(static_cast<std::size_t>(length)), static_cast<std::uint64_t>(at)));
    for (std::size_t i = 0; i < static_cast<std::size_t>(length); i += kBlock) {
      const auto block = std::span<const std::byte>(buffer).subspan(i, std::min(kBlock, static_cast<std::size_t>(length) - i));
      if (std::memcmp(block.data(), zeros.data(), block.size()) == 0) continue;
      const auto place = fmt::format("{}:", static_cast<std::uint64_t>(at) + i);
      hash.add(as_bytes(place));
      hash.add(block);
    }
    at += length;
  }
  if (errno != ENXIO) return fail_errno(errno, "seek in " + path.string());
  const auto size = fmt::format("end {}", status.st_size);
  hash.add(as_bytes(size));
  return digest_name(hash.finish());
}

Result<ImageDigests> make_image(const ImageSpec& spec) {
  const Utf8Names names;
  TRY(auto archive, ArchiveReader::open(spec.archive));
  TRY(auto* entry, archive.next());
  if (!entry) return bad_entry(spec.archive.string(), "is missing: the archive is empty");
  // The first entry is the root itself, dated like everything that the build made.
  TRY(auto image, Ext4Writer::create(spec.image, spec.disk_mib, archive_entry_mtime(entry)));
  std::vector<std::string> lines;
  const std::int64_t now = archive_entry_mtime(entry);
  std::set<std::string> folders;
  while (entry) {
    TRY(const auto path, normal_path(archive_entry_pathname(entry) ? archive_entry_pathname(entry) : ""));
    if (!spec.files.contains(path)) {
      if (archive_entry_filetype(entry) == AE_IFDIR) folders.insert(path);
      TRY(auto line, add_entry(archive, entry, image));
      if (!line.empty()) lines.push_back(std::move(line));
    }
    TRY(entry, archive.next());
  }
  TRY_VOID(add_files(spec, folders, now, image, lines));
  TRY_VOID(image.finish());

  std::sort(lines.begin(), lines.end());
  std::string manifest;
  for (const auto& line : lines) manifest += line;
  TRY(auto out, open_file(spec.manifest, O_WRONLY | O_CREAT | O_TRUNC, 0644));
  TRY_VOID(write_all(out, manifest));
  ImageDigests digests;
  digests.tree = digest_name(sha256(manifest));
  TRY(digests.image, digest_of_image(spec.image));
  return digests;
}

}  // namespace space::tmpl
