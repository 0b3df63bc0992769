//! The ioctl requests that the VMM makes to KVM (include/uapi/linux/kvm.h), terminals and sockets
//! (include/uapi/asm-generic/ioctls.h).

macro_rules! requests {
    ($($name:ident = $number:literal,)*) => {
        $(#[doc = concat!("`", stringify!($name), "`.")] pub const $name: u32 = $number;)*

        /// Names of the requests.
        pub static NAMES: &[(u32, &str)] = &[$(($name, stringify!($name)),)*];
    };
}

requests! {
    KVM_GET_API_VERSION = 0xae00,
    KVM_CREATE_VM = 0xae01,
    KVM_CHECK_EXTENSION = 0xae03,
    KVM_GET_VCPU_MMAP_SIZE = 0xae04,
    KVM_GET_SUPPORTED_CPUID = 0xc008_ae05,
    KVM_CREATE_VCPU = 0xae41,
    KVM_SET_USER_MEMORY_REGION = 0x4020_ae46,
    KVM_SET_TSS_ADDR = 0xae47,
    KVM_SET_IDENTITY_MAP_ADDR = 0x4008_ae48,
    KVM_CREATE_IRQCHIP = 0xae60,
    KVM_GET_IRQCHIP = 0xc208_ae62,
    KVM_SET_IRQCHIP = 0x8208_ae63,
    KVM_SET_GSI_ROUTING = 0x4008_ae6a,
    KVM_ENABLE_CAP = 0x4068_aea3,
    KVM_X86_SET_MSR_FILTER = 0x4188_aec6,
    KVM_IRQFD = 0x4020_ae76,
    KVM_CREATE_PIT2 = 0x4040_ae77,
    KVM_IOEVENTFD = 0x4040_ae79,
    KVM_RUN = 0xae80,
    KVM_GET_REGS = 0x8090_ae81,
    KVM_SET_REGS = 0x4090_ae82,
    KVM_GET_SREGS = 0x8138_ae83,
    KVM_SET_SREGS = 0x4138_ae84,
    KVM_TRANSLATE = 0xc018_ae85,
    KVM_GET_MSRS = 0xc008_ae88,
    KVM_SET_MSRS = 0x4008_ae89,
    KVM_SET_SIGNAL_MASK = 0x4004_ae8b,
    KVM_GET_LAPIC = 0x8400_ae8e,
    KVM_SET_LAPIC = 0x4400_ae8f,
    KVM_SET_CPUID2 = 0x4008_ae90,
    KVM_GET_MP_STATE = 0x8004_ae98,
    KVM_SET_MP_STATE = 0x4004_ae99,
    KVM_GET_VCPU_EVENTS = 0x8040_ae9f,
    KVM_GET_TSC_KHZ = 0xaea3,
    KVM_SIGNAL_MSI = 0x4020_aea5,
    KVM_SET_XCRS = 0x4188_aea7,
    KVM_GET_STATS_FD = 0xaece,
    KVM_GET_DEVICE_ATTR = 0x4018_aee2,
    TCGETS = 0x5401,
    TCSETS = 0x5402,
    TCSETSW = 0x5403,
    TIOCGPGRP = 0x540f,
    TIOCGWINSZ = 0x5413,
    FIONBIO = 0x5421,
    TCGETS2 = 0x802c_542a,
    TCSETS2 = 0x402c_542b,
}
