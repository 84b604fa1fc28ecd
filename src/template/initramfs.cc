#include "template/initramfs.h"

#include <archive.h>
#include <archive_entry.h>
#include <elf.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <sstream>

#include "base/file.h"

namespace space::tmpl {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kAgentBytes = 256 << 20;
constexpr std::size_t kModuleBytes = 16 << 20;

struct FreeWriter {
  void operator()(archive* a) const { archive_write_free(a); }
};
struct FreeEntry {
  void operator()(archive_entry* e) const { archive_entry_free(e); }
};

Result<> add(archive* out, const std::string& path, unsigned mode, std::string_view content) {
  const std::unique_ptr<archive_entry, FreeEntry> entry(archive_entry_new());
  archive_entry_set_pathname(entry.get(), path.c_str());
  archive_entry_set_mode(entry.get(), mode);
  archive_entry_set_size(entry.get(), static_cast<la_int64_t>(content.size()));
  archive_entry_set_mtime(entry.get(), 0, 0);
  archive_entry_set_uid(entry.get(), 0);
  archive_entry_set_gid(entry.get(), 0);
  archive_entry_set_nlink(entry.get(), 1);
  if (archive_write_header(out, entry.get()) != ARCHIVE_OK ||
      (!content.empty() && archive_write_data(out, content.data(), content.size()) != static_cast<la_ssize_t>(content.size())))
    return fail(ErrorKind::internal, "initramfs", fmt::format("cannot write {} into the initramfs: {}", path, archive_error_string(out)));
  return {};
}

tl::unexpected<Error> not_a_program(std::string_view what) {
  return fail(ErrorKind::invalid_argument, "agent_program", fmt::format("the agent {}", what),
              "build the target space-agent and use its static program");
}

}  // namespace

Result<std::string> make_cpio(std::vector<InitramfsFile> files) {
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  std::string bytes;
  const std::unique_ptr<archive, FreeWriter> out(archive_write_new());
  auto append = [](archive*, void* into, const void* data, std::size_t length) -> la_ssize_t {
    static_cast<std::string*>(into)->append(static_cast<const char*>(data), length);
    return static_cast<la_ssize_t>(length);
  };
  if (archive_write_set_format_cpio_newc(out.get()) != ARCHIVE_OK || archive_write_add_filter_none(out.get()) != ARCHIVE_OK ||
      archive_write_set_bytes_per_block(out.get(), 512) != ARCHIVE_OK ||
      archive_write_open(out.get(), &bytes, nullptr, append, nullptr) != ARCHIVE_OK)
    return fail(ErrorKind::internal, "initramfs", fmt::format("cannot start a cpio archive: {}", archive_error_string(out.get())));

  // Folders come before what lies in them: their paths are shorter and sort first.
  std::set<std::string> folders;
  for (const auto& file : files)
    for (auto path = fs::path(file.path).parent_path(); !path.empty(); path = path.parent_path()) folders.insert(path.string());
  for (const auto& folder : folders) TRY_VOID(add(out.get(), folder, S_IFDIR | 0755, {}));
  for (const auto& file : files) TRY_VOID(add(out.get(), file.path, S_IFREG | file.mode, file.content));
  if (archive_write_close(out.get()) != ARCHIVE_OK)
    return fail(ErrorKind::internal, "initramfs", fmt::format("cannot end the cpio archive: {}", archive_error_string(out.get())));
  return bytes;
}

Result<std::string> loadable_part(std::string program) {
  Elf64_Ehdr header;
  if (program.size() < sizeof header) return not_a_program("is not an ELF program");
  std::memcpy(&header, program.data(), sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64 ||
      header.e_phentsize != sizeof(Elf64_Phdr))
    return not_a_program("is not an ELF program for amd64");
  std::uint64_t end = sizeof header;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    const auto at = header.e_phoff + std::uint64_t{i} * sizeof(Elf64_Phdr);
    Elf64_Phdr segment;
    if (at > program.size() || program.size() - at < sizeof segment) return not_a_program("is cut short");
    std::memcpy(&segment, program.data() + at, sizeof segment);
    if (segment.p_type == PT_INTERP) return not_a_program("is linked dynamically and the initramfs has no libraries");
    if (segment.p_filesz > program.size() || segment.p_offset > program.size() - segment.p_filesz) return not_a_program("is cut short");
    end = std::max({end, at + sizeof segment, segment.p_offset + segment.p_filesz});
  }
  header.e_shoff = 0;
  header.e_shnum = header.e_shstrndx = 0;
  std::memcpy(program.data(), &header, sizeof header);
  program.resize(end);
  return program;
}

Result<std::string> make_initramfs(const fs::path& agent, const fs::path& modules) {
  auto program = read_file(agent, kAgentBytes);
  if (!program)
    return fail(ErrorKind::not_found, "agent_missing", "no agent at " + agent.string() + ": " + program.error().message,
                "build the target space-agent");
  TRY(auto init, loadable_part(std::move(*program)));
  std::vector<InitramfsFile> files;
  files.push_back({"init", 0755, std::move(init)});
  TRY(auto order, read_file(modules / "order", 64 << 10));
  std::istringstream names(order);
  for (std::string name; std::getline(names, name);) {
    if (name.empty() || name.find('/') != std::string::npos || !name.ends_with(".ko"))
      return fail(ErrorKind::corrupt, "template_kernel", fmt::format("'{}' in {} is not a module", name, (modules / "order").string()));
    TRY(auto content, read_file(modules / name, kModuleBytes));
    files.push_back({"modules/" + name, 0644, std::move(content)});
  }
  files.push_back({"modules/order", 0644, std::move(order)});
  return make_cpio(std::move(files));
}

}  // namespace space::tmpl
