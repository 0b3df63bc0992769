//! The ports by which a guest powers off or resets its machine.

use boot::layout;

/// A request by the guest to power off or reset its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerRequest {
    /// Power-off (ACPI S5).
    PowerOff,
    /// Reset, by the keyboard controller, ACPI, or one of a PC's reset ports.
    Reset,
}

/// Command port of the 8042 keyboard controller.
const I8042_COMMAND: u16 = 0x64;
/// 8042 command: pulse output line 0, which is wired to the CPU's reset.
const I8042_RESET: u8 = 0xfe;
/// Reset control register of PCI chipsets: setting bit 2 resets (`reboot=p`).
const PCI_RESET: u16 = 0xcf9;
const PCI_RESET_CPU: u8 = 1 << 2;
/// System control port A: bit 0 resets.
const PORT_A: u16 = 0x92;
const PORT_A_RESET: u8 = 1 << 0;

/// Decodes a port write. None if it is not a power request.
pub fn write(port: u16, data: &[u8]) -> Option<PowerRequest> {
    let value = *data.first()?;
    match port {
        I8042_COMMAND if value == I8042_RESET => Some(PowerRequest::Reset),
        PCI_RESET if data.len() == 1 && value & PCI_RESET_CPU != 0 => Some(PowerRequest::Reset),
        PORT_A if value & PORT_A_RESET != 0 => Some(PowerRequest::Reset),
        layout::ACPI_RESET_PORT if value == layout::ACPI_RESET_VALUE => Some(PowerRequest::Reset),
        layout::ACPI_SLEEP_CONTROL_PORT if value == layout::ACPI_POWER_OFF => {
            Some(PowerRequest::PowerOff)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_requests_count() {
        let reset = Some(PowerRequest::Reset);
        assert_eq!(write(0x64, &[0xfe]), reset);
        assert_eq!(write(0x64, &[0xff]), None);
        let s5 = layout::ACPI_POWER_OFF;
        assert_eq!(write(layout::ACPI_SLEEP_CONTROL_PORT, &[s5]), Some(PowerRequest::PowerOff));
        let not_enabled = s5 & !layout::ACPI_SLEEP_ENABLE;
        assert_eq!(write(layout::ACPI_SLEEP_CONTROL_PORT, &[not_enabled]), None);
        assert_eq!(
            write(layout::ACPI_RESET_PORT, &[layout::ACPI_RESET_VALUE]),
            Some(PowerRequest::Reset)
        );
        assert_eq!(write(layout::ACPI_RESET_PORT, &[]), None);
        // Linux writes these for `reboot=p`; others enable address line 20.
        assert_eq!([0x02, 0x06, 0x0e].map(|value| write(0xcf9, &[value])), [None, reset, reset]);
        assert_eq!([0x02, 0x03].map(|value| write(0x92, &[value])), [None, reset]);
    }
}
