"""What the figures were measured on; never a name of the machine."""
import os, platform, re, subprocess


def describe():
    cpu = re.search(r'model name\s*:\s*(.+)', open('/proc/cpuinfo').read())
    memory = int(re.search(r'MemTotal:\s*(\d+)', open('/proc/meminfo').read()).group(1)) // 1024
    qemu = subprocess.run(['qemu-system-x86_64', '--version'], capture_output=True, text=True).stdout
    version = re.search(r'version ([\d.]+)', qemu)
    flags = open('/proc/cpuinfo').read()
    kvm = os.path.exists('/dev/kvm') and re.search(r'\b(vmx|svm)\b', flags)
    return {'cpus': os.cpu_count(), 'cpu': cpu.group(1) if cpu else '?', 'memory_mib': memory, 'kernel': platform.release(),
            'qemu': version.group(1) if version else '?', 'accelerator': 'kvm' if kvm else 'tcg'}
