//! The ports by which a guest ends or restarts its machine.

use boot::layout;

/// A request by the guest to end or restart its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerRequest {
    /// Power-off (ACPI S5).
    PowerOff,
    /// Reset, by the keyboard controller or ACPI.
    Reset,
}

/// Command port of the 8042 keyboard controller.
const I8042_COMMAND: u16 = 0x64;
/// 8042 command: pulse output line 0, which is wired to the CPU's reset.
const I8042_RESET: u8 = 0xfe;
/// Decodes a write to a port; None if it is not such a request.
pub fn write(port: u16, data: &[u8]) -> Option<PowerRequest> {
    let value = *data.first()?;
    match port {
        I8042_COMMAND if value == I8042_RESET => Some(PowerRequest::Reset),
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
        assert_eq!(write(0x64, &[0xfe]), Some(PowerRequest::Reset));
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
    }
}
