// For tests: archives and packages made in memory.
#pragma once

#include <archive.h>
#include <archive_entry.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>
#include <string>
#include <vector>

#include "template/archive_reader.h"

namespace space::tmpl {

struct TestEntry {
  std::string path = {};
  mode_t type = S_IFREG;
  mode_t mode = 0644;
  std::string content = {};    // of a file
  std::string link = {};       // of a symbolic link
  std::string hard_link = {};  // to an earlier path
  int uid = 0, gid = 0;
  std::int64_t mtime = 1'700'000'000;
  std::map<std::string, std::string> extended = {};
};

inline std::string make_archive(int (*format)(archive*), int filter, const std::vector<TestEntry>& entries) {
  const Utf8Names names;
  std::string bytes;
  archive* const out = archive_write_new();
  EXPECT_EQ(format(out), ARCHIVE_OK);
  archive_write_add_filter(out, filter);
  archive_write_set_bytes_in_last_block(out, 1);
  auto append = [](archive*, void* into, const void* data, std::size_t length) -> la_ssize_t {
    static_cast<std::string*>(into)->append(static_cast<const char*>(data), length);
    return static_cast<la_ssize_t>(length);
  };
  EXPECT_EQ(archive_write_open(out, &bytes, nullptr, append, nullptr), ARCHIVE_OK);
  for (const auto& item : entries) {
    archive_entry* const entry = archive_entry_new();
    archive_entry_set_pathname(entry, item.path.c_str());
    archive_entry_set_filetype(entry, item.type);
    archive_entry_set_perm(entry, item.mode);
    archive_entry_set_uid(entry, item.uid);
    archive_entry_set_gid(entry, item.gid);
    archive_entry_set_mtime(entry, item.mtime, 0);
    archive_entry_set_size(entry, static_cast<la_int64_t>(item.content.size()));
    if (!item.link.empty()) archive_entry_set_symlink(entry, item.link.c_str());
    if (!item.hard_link.empty()) archive_entry_set_hardlink(entry, item.hard_link.c_str());
    for (const auto& [name, value] : item.extended) archive_entry_xattr_add_entry(entry, name.c_str(), value.data(), value.size());
    EXPECT_EQ(archive_write_header(out, entry), ARCHIVE_OK) << item.path << ": " << archive_error_string(out);
    if (!item.content.empty()) {
      EXPECT_EQ(archive_write_data(out, item.content.data(), item.content.size()), static_cast<la_ssize_t>(item.content.size()));
    }
    archive_entry_free(entry);
  }
  archive_write_close(out);
  archive_write_free(out);
  return bytes;
}

inline std::string make_tar(const std::vector<TestEntry>& entries, int filter = ARCHIVE_FILTER_NONE) {
  return make_archive(archive_write_set_format_pax, filter, entries);
}

inline std::string compressed(const std::string& bytes, int filter) {
  return make_archive(archive_write_set_format_raw, filter, {{.path = "data", .content = bytes}});
}

// A bzImage with nothing but the fields that name its payload (Linux, Documentation/x86/boot.rst).
inline std::string test_bz_image(const std::string& payload, std::uint32_t uncompressed_size) {
  auto put = [](std::string& into, std::size_t at, std::uint32_t value) {
    for (int i = 0; i < 4; ++i) into[at + static_cast<std::size_t>(i)] = static_cast<char>(value >> (8 * i));
  };
  std::string image(2 * 512, '\0');
  image[0x1f1] = 1;
  image.replace(0x202, 4, "HdrS");
  image[0x206] = 0x0f;
  image[0x207] = 0x02;
  put(image, 0x248, 16);
  put(image, 0x24c, static_cast<std::uint32_t>(payload.size() + 4));
  image.append(16, 'x');
  image += payload;
  std::string size(4, '\0');
  put(size, 0, uncompressed_size);
  if (payload.starts_with("\x1f\x8b"))
    size.clear(), put(image, 0x24c, static_cast<std::uint32_t>(payload.size()));  // it ends with the size by itself
  return image + size + "what follows the payload";
}

inline std::string test_kernel_package(const std::string& kernel, const std::vector<std::string>& modules) {
  std::vector<TestEntry> files = {
      {.path = "./boot/vmlinuz-6.1-test",
       .content = test_bz_image(compressed(kernel, ARCHIVE_FILTER_XZ), static_cast<std::uint32_t>(kernel.size()))}};
  for (const auto& module : modules)
    files.push_back({.path = "./lib/modules/6.1-test/kernel/drivers/" + module, .content = "module " + module});
  return make_archive(archive_write_set_format_ar_bsd, ARCHIVE_FILTER_NONE,
                      {{.path = "debian-binary", .content = "2.0\n"},
                       {.path = "control.tar.xz", .content = make_tar({}, ARCHIVE_FILTER_XZ)},
                       {.path = "data.tar.xz", .content = make_tar(files, ARCHIVE_FILTER_XZ)}});
}

}  // namespace space::tmpl
