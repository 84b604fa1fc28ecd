"""virtio_driver.py STAGE [long]: runs in the guest as root. Takes every virtio device from the kernel, the disk below it among them, and drives the devices' registers and
queues itself, wrongly. Prints a line a stage; at the end the kernel gets the network back, so that the lines can be read."""

import ctypes
import fcntl
import mmap
import os
import random
import socket
import struct
import sys
import time

LONG = "long" in sys.argv[2:]
DRIVER = "/sys/bus/platform/drivers/virtio-mmio/"
PLACES = {"blk": ("LNRO0005:02", 0x200), "net": ("LNRO0005:01", 0x400), "rng": ("LNRO0005:00", 0x600)}
PAGE, RAM_END = 4096, 0x20000000
libc = ctypes.CDLL(None, use_errno=True)
random.seed(7)
print("stage start", flush=True)

# Everything that is needed later comes into memory now: the disk will be gone.
rings = mmap.mmap(-1, 64 * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)
rings.write(b"\1" * (64 * PAGE))
libc.mlockall(3)
struct.pack("<QQII", 0, 0, 0, 0), socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close(), time.sleep(0.001), "x".encode("latin1")
pagemap = os.open("/proc/self/pagemap", os.O_RDONLY)
base = ctypes.addressof(ctypes.c_char.from_buffer(rings))
physical = [(struct.unpack("<Q", os.pread(pagemap, 8, (base // PAGE + i) * 8))[0] & (1 << 55) - 1) * PAGE for i in range(64)]
devmem = os.open("/dev/mem", os.O_RDWR | os.O_SYNC)
binders = {name: os.open(DRIVER + name, os.O_WRONLY) for name in ("bind", "unbind")}


def sysfs(verb, device):
    try:
        os.write(binders[verb], device.encode())
        return True
    except OSError:
        return False


for name in ("rng", "net", "blk"):
    if not sysfs("unbind", PLACES[name][0]):
        print("stage unbind failed", name, flush=True)
window = mmap.mmap(devmem, PAGE, offset=0xFEB00000)


def register(device, offset, width=ctypes.c_uint32):
    return width.from_buffer(window, PLACES[device][1] + offset)


def get(device, offset):
    return register(device, offset).value


def put(device, offset, value):
    register(device, offset).value = value & 0xFFFFFFFF


def put64(device, offset, value):
    put(device, offset, value)
    put(device, offset + 4, value >> 32)


class Queue:
    """Descriptors on page 0, the available ring on page 1, the used ring on page 2; data from page 3 on."""

    def __init__(self, device, number=0, size=16, features=1 << 32 | 1 << 28, page=0):
        self.device, self.number, self.size, self.page = device, number, size, page
        rings[page * PAGE:(page + 3) * PAGE] = bytes(3 * PAGE)
        put(device, 0x70, 0)
        for status in (1, 3):
            put(device, 0x70, status)
        for half in (0, 1):
            put(device, 0x24, half)
            put(device, 0x20, features >> 32 * half)
        put(device, 0x70, 11)
        self.place(physical[page], physical[page + 1], physical[page + 2], size)
        put(device, 0x70, 15)
        self.index = 0

    def place(self, descriptors, available, used, size):
        put(self.device, 0x30, self.number)
        put(self.device, 0x38, size)
        put64(self.device, 0x80, descriptors)
        put64(self.device, 0x90, available)
        put64(self.device, 0xA0, used)
        put(self.device, 0x44, 1)

    def descriptor(self, at, address, length, flags=0, following=0, table=None):
        where = (table if table is not None else self.page * PAGE) + at * 16
        rings[where:where + 16] = struct.pack("<QIHH", address & (1 << 64) - 1, length & 0xFFFFFFFF, flags, following)

    def offer(self, head, jump=1):
        ring = (self.page + 1) * PAGE
        struct.pack_into("<H", rings, ring + 4 + 2 * (self.index % self.size), head & 0xFFFF)
        self.index = self.index + jump & 0xFFFF
        struct.pack_into("<H", rings, ring + 2, self.index)
        put(self.device, 0x50, self.number)

    def used(self):
        return struct.unpack_from("<H", rings, (self.page + 2) * PAGE + 2)[0]

    def wait(self, seconds=0.3):
        until = time.monotonic() + seconds
        while self.used() == 0 and time.monotonic() < until:
            time.sleep(0.005)
        return self.used()


def stage(name, work):
    try:
        print("stage", name, work(), flush=True)
    except BaseException as error:
        print("stage", name, "error", repr(error), flush=True)


def control():
    """The same driver, used rightly: the entropy device fills a page of ours."""
    queue = Queue("rng")
    rings[3 * PAGE:4 * PAGE] = bytes(PAGE)
    queue.descriptor(0, physical[3], 64, 2)
    queue.offer(0)
    queue.wait(2)
    return "works" if queue.used() == 1 and any(rings[3 * PAGE:3 * PAGE + 64]) else f"does nothing {queue.used()}"


def sweep():
    count = 0
    for device in PLACES:
        for _ in range(20 if LONG else 1):
            for offset in range(0, 0x200, 4):
                if offset == 0x50:
                    continue  # notifications are for the stages below
                put(device, offset, random.getrandbits(32))
                get(device, offset)
                count += 1
            for offset in range(0x100, 0x200):
                register(device, offset, ctypes.c_uint8).value = random.getrandbits(8)
                count += 1
            for offset in range(0, 0x1F8, 4):
                try:
                    register(device, offset + 2, ctypes.c_uint16).value = random.getrandbits(16)
                    register(device, offset & ~7, ctypes.c_uint64).value = random.getrandbits(64)
                    count += 2
                except ValueError:
                    pass
        put(device, 0x70, 0)
    return count


def after_activation():
    count = 0
    for device in PLACES:
        for size in (0, 65535, 3, 1 << 31):
            queue = Queue(device)
            put(device, 0x38, size)
            for offset, value in ((0x44, 0), (0x44, 1), (0x80, 0xFFFFFFFF), (0x84, 0xFFFFFFFF), (0x90, RAM_END - 2), (0xA0, 0xFEB00000), (0x30, 1000), (0x44, 1), (0x38, 16), (0x30, 0)):
                put(device, offset, value)
                count += 1
            queue.offer(0)
            put(device, 0x50, 1000)
            put(device, 0x70, 0)
    return count


def chains():
    here, other = physical[3], physical[4]
    table = 5 * PAGE
    evil = {
        "loop": [(here, 16, 3, 0)], "next out of range": [(here, 16, 3, 60000)], "no length": [(here, 0, 2, 0)],
        "last byte of memory": [(RAM_END - 1, 4096, 2, 0)], "beyond memory": [(1 << 40, 64, 2, 0)], "its own registers": [(0xFEB00200, 512, 2, 0)], "overflow": [((1 << 64) - 8, 4096, 2, 0)],
        "the wrong direction": [(here, 64, 0, 0)], "read after write": [(here, 16, 3, 1), (other, 16, 0, 0)], "indirect without length": [(physical[5], 0, 4, 0)],
        "indirect of odd length": [(physical[5], 17, 4, 0)], "indirect of 4 GiB": [(physical[5], 0xFFFFFFF0, 4, 0)], "indirect and next": [(physical[5], 32, 5, 1), (here, 8, 2, 0)],
        "indirect inside indirect": [(physical[5], 32, 4, 0)], "indirect beyond memory": [(RAM_END - 8, 64, 4, 0)], "local apic": [(0xFEE00000, 4096, 2, 0)], "4 GiB": [(here, 0xFFFFFFFF, 2, 0)],
    }
    count = 0
    for device in PLACES:
        for name, chain in evil.items():
            queue = Queue(device, number=1 if device == "net" else 0)
            queue.descriptor(0, physical[6], 64, 4, 0, table=table)
            for at, (address, length, flags, following) in enumerate(chain):
                queue.descriptor(at, address, length, flags, following)
            queue.offer(0)
            count += 1
        for jump in (65535, 17, 1000):
            queue = Queue(device, number=1 if device == "net" else 0)
            queue.offer(0, jump=jump)
            queue.offer(65535)
            count += 1
        for places in ((0xFEB00200, physical[1], physical[2]), (physical[0], RAM_END - 1, physical[2]), (physical[0], physical[1], RAM_END - 2), (1 << 60, 1 << 60, 1 << 60), (physical[0] + 1, physical[1] + 1, physical[2] + 3)):
            queue = Queue(device)
            put(device, 0x44, 0)
            queue.place(*places, 1024)
            queue.offer(0)
            count += 1
        put(device, 0x70, 0)
    return count


def races():
    rounds = 200000 if LONG else 2000
    queue = Queue("net", number=1)
    lengths, flags = (64, 0xFFFFFFFF, 0, 1514), (0, 1, 4, 2)
    for i in range(rounds):
        queue.descriptor(0, physical[3], 64, 0)
        queue.offer(0)
        queue.descriptor(0, (physical[3], RAM_END - 1, 1 << 50)[i % 3], lengths[i % 4], flags[i % 4], i)
        if i % 64 == 0 and get("net", 0x70) & 0x40:
            queue = Queue("net", number=1)
    put("net", 0x70, 0)
    return rounds


def frames():
    count = 0
    header = struct.Struct("<BBHHHHH")
    body = bytes.fromhex("025ace000001025ace0000020800") + bytes(1500)
    for features in (1 << 32, 1 << 32 | 0x1 | 0x2 | 0x800 | 0x1000 | 0x4000 | 0x8000 | 1 << 15):
        for flags, kind, header_length, size, start, offset in ((1, 0, 0, 0, 65535, 65535), (0, 1, 65535, 1, 0, 0), (1, 1, 14, 0, 14, 0), (0, 0x7F, 1, 1, 1, 1), (1, 4, 0, 65535, 0, 65535), (0xFF, 0x83, 0xFFFF, 0xFFFF, 0xFFFF, 0xFFFF), (1, 3, 54, 1, 34, 6)):
            for length in (0, 1, 13, 14, 60, 1514, 9000, 65535, 120000):
                queue = Queue("net", number=1, size=64, features=features)
                rings[3 * PAGE:3 * PAGE + 12 + len(body)] = header.pack(flags, kind, header_length, size, start, offset, 1) + body
                pieces, at = [], 0
                while length > 0 and len(pieces) < 50:
                    piece = min(length, PAGE)
                    pieces.append(piece)
                    length -= piece
                queue.descriptor(0, physical[3], 12, 1 if pieces else 0, 1)
                for at, piece in enumerate(pieces, 1):
                    queue.descriptor(at, physical[3 + at], piece, 1 if at < len(pieces) else 0, at + 1)
                queue.offer(0)
                count += 1
    receive = Queue("net", number=0)
    for size in (0, 1, 11, 12, 13):
        receive.descriptor(0, physical[3], size, 2)
        receive.offer(0)
        count += 1
    put("net", 0x70, 0)
    return count


stage("control", control)
wanted = sys.argv[1]
stage(wanted, {"sweep": sweep, "activation": after_activation, "chains": chains, "races": races, "frames": frames}[wanted])
stage("control-after", control)
for name in PLACES:
    put(name, 0x70, 0)
bound = sysfs("bind", PLACES["net"][0])
time.sleep(0.5)
control_socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def address(text):
    return b"eth0".ljust(16, b"\0") + struct.pack("<HH4s8x", socket.AF_INET, 0, bytes(int(part) for part in text.split(".")))


for request, argument in ((0x8916, address("10.0.0.2")), (0x891C, address("255.255.255.252")), (0x8914, b"eth0".ljust(16, b"\0") + struct.pack("<H14x", 0x43))):
    try:
        fcntl.ioctl(control_socket, request, argument)
    except OSError as error:
        print("stage ioctl", hex(request), error, flush=True)
print("stage end", bound, flush=True)
