/* Loaded into every VMM in its jail, by /etc/ld.so.preload of the build's root. Write tracking needs a userfaultfd, and one belongs to
 * the process that makes it; so this makes it, before the VMM's first own instruction, from a descriptor of /dev/userfaultfd that the
 * warden left at a fixed number, hands it over on a socket beside it, and closes all three. What runs later in the VMM has neither the
 * device nor the userfaultfd. Without those descriptors it does nothing. No libc: it must load before and beside anything. */
#include <linux/ioctl.h>
#include <linux/userfaultfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "warden/userfault.h"

#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00) /* Linux 6.1 */
#endif

static long system_call(long number, long a, long b, long c) {
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
  return result;
}

__attribute__((constructor)) static void hand_over(void) {
  const long userfault = system_call(SYS_ioctl, SPACE_USERFAULT_DEVICE, USERFAULTFD_IOC_NEW, 02000000 | 04000 /* O_CLOEXEC | O_NONBLOCK */);
  char word = userfault >= 0 ? 'u' : 'n';
  struct iovec part = {&word, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control;
  if (userfault >= 0) {
    control.header.cmsg_len = CMSG_LEN(sizeof(int));
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    *(int*)CMSG_DATA(&control.header) = (int)userfault;
    message.msg_control = &control;
    message.msg_controllen = sizeof control;
  }
  system_call(SYS_sendmsg, SPACE_USERFAULT_SOCKET, (long)&message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (userfault >= 0) system_call(SYS_close, userfault, 0, 0);
  system_call(SYS_close, SPACE_USERFAULT_DEVICE, 0, 0);
  system_call(SYS_close, SPACE_USERFAULT_SOCKET, 0, 0);
}
