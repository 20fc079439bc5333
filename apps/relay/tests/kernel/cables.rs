//! Over real cables: what is sent to a group at one end of a cable arrives at the far ends of two others,
//! as each output says.
