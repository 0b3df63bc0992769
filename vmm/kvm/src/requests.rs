//! Request numbers of KVM ioctls that kvm-ioctls does not wrap in the required form (kvm/api.rst,
//! 4; include/uapi/linux/kvm.h).

use kvm_bindings::{KVMIO, kvm_device_attr, kvm_vcpu_events};
use vmm_sys_util::{ioctl_io_nr, ioctl_ior_nr, ioctl_iow_nr};

ioctl_io_nr!(KVM_RUN, KVMIO, 0x80);
// The kernel encodes the size of the header alone, a 4-byte struct.
ioctl_iow_nr!(KVM_SET_SIGNAL_MASK, KVMIO, 0x8b, u32);
ioctl_ior_nr!(KVM_GET_VCPU_EVENTS, KVMIO, 0x9f, kvm_vcpu_events);
ioctl_io_nr!(KVM_GET_STATS_FD, KVMIO, 0xce);
ioctl_iow_nr!(KVM_GET_DEVICE_ATTR, KVMIO, 0xe2, kvm_device_attr);
