#include "warden/vmm_build.h"

#include <cerrno>
#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <map>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/encoding.h"
#include "base/file.h"
#include "base/random.h"
#include "warden/jail.h"
#include "warden/tool.h"
#include "warden/userfault_object.h"

namespace space::warden {
namespace fs = std::filesystem;
namespace {

// All libraries go into one folder that the loader searches by itself: there is no ld.so.cache in the jail.
constexpr const char* kLibraries = "/lib/x86_64-linux-gnu/";

// What QEMU opens beside its libraries for the machines we start; looked for relative to its own folder, here and in the jail.
constexpr const char* kFirmware[] = {"bios-microvm.bin", "qboot.rom", "pvh.bin", "linuxboot_dma.bin", "kvmvapic.bin"};
constexpr const char* kModuleFolder = "lib/x86_64-linux-gnu/qemu";
constexpr std::string_view kModules = "accel-";

struct Part {
  fs::path source;
  unsigned mode = 0444;
  std::string content = {};  // when there is no source
};
using Parts = std::map<std::string, Part>;  // by the path in the jail

bool present(const fs::path& path) { return ::access(path.c_str(), F_OK) == 0; }

// `ld.so --list`: lines "name => /path (0x…)"; the loader itself and the vDSO have no arrow.
Result<> add_libraries(Parts& parts, const std::string& loader, const fs::path& file, uid_t tool_uid) {
  TRY(const std::string text, run_tool({loader, "--list", file.string()}, tool_uid));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, arrow, path;
    if (!(words >> name >> arrow >> path) || arrow != "=>") continue;
    if (path.empty() || path[0] != '/')
      return fail(ErrorKind::unsupported, "library_missing", fmt::format("{} needs {}, which is not there", file.string(), name),
                  "install the VMM's package again");
    parts[kLibraries + fs::path(name).filename().string()] = {path, 0555};
  }
  return {};
}

Result<Parts> parts_of(const fs::path& program, uid_t tool_uid) {
  Parts parts;
  // Executable and not readable: then the kernel keeps the process undumpable after exec (ptrace(2), "PR_SET_DUMPABLE").
  parts[kVmmProgram] = {program, 0711};
  TRY(const std::string loader, elf_interpreter(program));
  if (loader.empty()) return parts;
  parts[loader] = {loader, 0555};
  parts[kUserfaultObject] = {{}, 0555, std::string(userfault_object())};
  parts[kPreloadList] = {{}, 0444, std::string(kUserfaultObject) + "\n"};
  TRY_VOID(add_libraries(parts, loader, program, tool_uid));
  const fs::path prefix = program.parent_path().parent_path();
  for (const char* name : kFirmware)
    if (const fs::path file = prefix / "share/qemu" / name; present(file)) parts[fmt::format("/usr/share/qemu/{}", name)] = {file};
  if (const fs::path folder = prefix / kModuleFolder; present(folder)) {
    TRY(const auto names, list_directory(folder));
    for (const std::string& name : names) {
      if (!name.starts_with(kModules)) continue;
      parts[fmt::format("/usr/{}/{}", kModuleFolder, name)] = {folder / name, 0555};
      TRY_VOID(add_libraries(parts, loader, folder / name, tool_uid));
    }
  }
  return parts;
}

Result<std::string> digest_of(const Parts& parts) {
  Sha256Stream whole;
  for (const auto& [path, part] : parts) {
    Sha256 digest = sha256(part.content);
    if (!part.source.empty()) {
      TRY(Fd file, open_file(part.source, O_RDONLY));
      TRY(digest, sha256_of_file(file));
    }
    whole.add(as_bytes(fmt::format("{}\n{:o}\n", path, part.mode)));
    whole.add(digest);
  }
  return hex_encode(whole.finish());
}

Result<> copy_parts(const Parts& parts, const fs::path& root) {
  for (const char* folder : {"proc", "dev"}) TRY_VOID(make_directories(root / folder, 0755));
  for (const auto& [path, part] : parts) {
    const fs::path target = root / path.substr(1);
    TRY_VOID(make_directories(target.parent_path(), 0755));
    TRY(Fd to, open_file(target, O_WRONLY | O_CREAT | O_EXCL, 0600));
    if (part.source.empty()) {
      TRY_VOID(write_all(to, part.content));
    } else {
      TRY(Fd from, open_file(part.source, O_RDONLY));
      TRY_VOID(copy_file_sparse(from, to));
    }
    if (::fchmod(to.get(), part.mode) != 0) return fail_errno(errno, fmt::format("chmod {}", target.string()));
  }
  TRY(Fd folder, open_file(root, O_RDONLY | O_DIRECTORY));
  if (::syncfs(folder.get()) != 0) return fail_errno(errno, "sync the VMM build");
  return {};
}

}  // namespace

std::string version_in(std::string_view text) {
  const auto at = text.find("version ");
  if (at == std::string_view::npos) return "unknown";
  const std::string_view rest = text.substr(at + 8);
  const std::string_view version = rest.substr(0, rest.find_first_not_of("0123456789."));
  return version.empty() || version.size() > 40 ? "unknown" : std::string(version);
}

Result<std::string> elf_interpreter(const fs::path& program) {
  TRY(Fd file, open_file(program, O_RDONLY));
  const auto bad = [&] {
    return fail(ErrorKind::unsupported, "vmm_not_a_program", fmt::format("{} is not a 64-bit ELF program", program.string()));
  };
  Elf64_Ehdr header{};
  if (!pread_all(file, std::as_writable_bytes(std::span(&header, 1)), 0) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr))
    return bad();
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    if (!pread_all(file, std::as_writable_bytes(std::span(&segment, 1)), header.e_phoff + i * sizeof segment)) return bad();
    if (segment.p_type != PT_INTERP) continue;
    if (segment.p_filesz < 2 || segment.p_filesz > 256) return bad();
    std::string path(segment.p_filesz, '\0');
    TRY_VOID(pread_all(file, std::as_writable_bytes(std::span(path)), segment.p_offset));
    path.resize(path.find('\0'));
    return path.starts_with('/') ? Result<std::string>(path) : bad();
  }
  return std::string();
}

Result<VmmBuild> prepare_build(const fs::path& program, const fs::path& builds, uid_t tool_uid) {
  std::error_code error;
  const fs::path resolved = fs::canonical(program, error);
  if (error)
    return fail(ErrorKind::unsupported, "vmm_missing", fmt::format("{} is not there", program.string()),
                "install the package qemu-system-x86");
  VmmBuild build;
  TRY(const Parts parts, parts_of(resolved, tool_uid));
  TRY(build.digest, digest_of(parts));
  TRY(const std::string text, run_tool({resolved.string(), "--version"}, tool_uid));
  build.version = version_in(text);
  build.root = builds / build.digest;
  if (present(build.root)) return build;
  TRY_VOID(make_directories(builds, 0755));
  const fs::path aside = builds / fmt::format(".{}", new_id());
  TRY_VOID(make_directories(aside, 0755));
  auto made = copy_parts(parts, aside);
  if (made && ::rename(aside.c_str(), build.root.c_str()) != 0 && errno != EEXIST && errno != ENOTEMPTY)
    made = fail_errno(errno, fmt::format("rename to {}", build.root.string()));
  (void)remove_tree(aside);  // not there any more, unless something went wrong or another warden was faster
  if (!made) return fail(made.error());
  TRY_VOID(sync_directory(builds));
  return build;
}

Result<fs::path> find_build(const fs::path& builds, const std::string& digest) {
  const fs::path root = builds / digest;
  if (!present(root))
    return fail(ErrorKind::not_found, "vmm_build_unknown", fmt::format("the VMM build {} is not kept on this host", digest.substr(0, 12)),
                "start the sandbox from its disk instead");
  return root;
}

}  // namespace space::warden
