//! Keys of specs as options of `compare`.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, error::ErrorKind};

use study::spec::KeyValues;

/// `--KEY VALUES` for each key of a spec that is not the name of another option, with the meaning of `--set KEY=VALUES`.
#[derive(Debug, Clone, Default)]
pub(super) struct KeyOptions(pub Vec<KeyValues>);

impl Args for KeyOptions {
    fn augment_args(command: Command) -> Command {
        let is_free = |command: &Command, key| {
            command.get_arguments().all(|option| option.get_long() != Some(key))
        };
        KeyValues::keys().into_iter().fold(command, |command, key| {
            if !is_free(&command, key) {
                return command;
            }
            let option = Arg::new(key).long(key).value_name("VALUES");
            command.arg(option.action(ArgAction::Append).hide(true))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for KeyOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut options = Self::default();
        options.update_from_arg_matches(matches)?;
        Ok(options)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        for key in KeyValues::keys() {
            // Other options with the name of a key have values of other types.
            let values = matches.try_get_many::<String>(key).ok().flatten().unwrap_or_default();
            for values in values {
                let parsed = KeyValues::parse_spec(&format!("{key}={values}"));
                self.0.push(parsed.map_err(|error| Error::raw(ErrorKind::ValueValidation, error))?);
            }
        }
        Ok(())
    }
}
