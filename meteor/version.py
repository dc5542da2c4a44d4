"""The version of Meteor, in one place."""

VERSION = "0.1.0"
