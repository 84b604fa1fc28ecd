#include "warden/userfault_object.h"

asm(R"(
  .section .rodata
  .global space_userfault_object
  .global space_userfault_object_end
space_userfault_object:
  .incbin ")" SPACE_USERFAULT_OBJECT R"("
space_userfault_object_end:
  .previous
)");

extern "C" {
extern const char space_userfault_object[];
extern const char space_userfault_object_end[];
}

namespace space::warden {

std::string_view userfault_object() {
  return {space_userfault_object, static_cast<std::size_t>(space_userfault_object_end - space_userfault_object)};
}

}  // namespace space::warden
