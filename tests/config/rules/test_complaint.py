from inferd.config.rules.complaint import Complaint


def test_the_error_of_a_complaint_names_model_and_file_and_keeps_the_path():
    error = Complaint("dims are wrong", ("input", 0, "dims")).error("m", "config.pbtxt")
    assert error.message == "model 'm', config.pbtxt: dims are wrong"
    assert error.path == ("input", 0, "dims")
