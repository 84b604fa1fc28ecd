// The shared object made of userfault_preload.c, held inside this program so that it cannot be missing or another one.
#pragma once

#include <string_view>

namespace space::warden {

inline constexpr const char* kUserfaultObject = "/usr/lib/space-userfault.so";  // inside the root of a jail
inline constexpr const char* kPreloadList = "/etc/ld.so.preload";               // ld.so(8): "FILES"

std::string_view userfault_object();

}  // namespace space::warden
